"""What columns of sales tables are called, in some languages. Pure.

The earlier a word stands, the likelier a column with that word in its name is meant.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WORDS: Mapping[str, Sequence[str]] = {
    "region": _words(
        "region pais country land market markt marche mercado store shop branch filiale laden magasin tienda "
        "negozio loja sklep winkel butik butikk kraj pays paese territory standort location site state "
        "bundesland province county city stadt ville ciudad citta cidade miasto stad"
    ),
    "customer": _words(
        "customer client kunde kunden kundennummer kundennr kund kunder cliente klant klient asiakas user "
        "usuario utilisateur utilizador nutzer benutzer buyer kaufer shopper acheteur comprador member "
        "mitglied household account konto konsument consumer visitor reviewer person subscriber patron "
        "debitor"
    ),
    "item": _words(
        "item sku product article artikel artikelnummer artikelnr produkt produit producto prodotto produto "
        "articulo articolo artigo artykul towar vare varenummer vara tuote stockcode asin ean gtin isbn upc "
        "movie film book buch song track material listing"
    ),
    "time": _words(
        "date time timestamp datetime when datum fecha data dato zeit zeitpunkt zeitstempel kaufdatum "
        "bestelldatum rechnungsdatum belegdatum day tag jour dia giorno heure hora ora created purchased "
        "bought ordered sold paivays pvm ts unixtime"
    ),
    "description": _words(
        "description bezeichnung beschreibung descripcion descrizione descricao designation omschrijving "
        "libelle opis beskrivelse beskrivning kuvaus title titel titre titulo titolo name nombre nom nome "
        "naam nazwa navn namn nimi produktname artikelname productname itemname"
    ),
    "quantity": _words(
        "quantity qty menge anzahl stuck stuckzahl quantite cantidad quantita quantidade aantal hoeveelheid "
        "ilosc antal maara units pieces pcs"
    ),
}
NUMBERS = frozenset(_words("id nr no num number code key nummer numero numer ref"))
# A word that says that another thing is meant than the rest of the name.
_OF_ORDERS = frozenset(_words("order invoice transaction basket receipt bestellung rechnung beleg bon facture pedido"))
_ABOUT = frozenset(
    _words(
        "price preis prix precio prezzo amount betrag count quantity qty total name category kategorie type "
        "typ group gruppe brand marke weight status description segment age gender city country email mail "
        "phone address line"
    )
)
WRONG: Mapping[str, frozenset[str]] = {
    "customer": _ABOUT | _OF_ORDERS | frozenset(WORDS["item"]),
    "item": _ABOUT | _OF_ORDERS | frozenset(WORDS["customer"]) | frozenset(WORDS["description"]),
    "region": frozenset(["price", "type", "size", "manager"]),
    "time": frozenset(
        _words("birth birthday geburtstag delivery lieferung shipped due updated expiry zone year month")
    ),
    "description": frozenset((*WORDS["customer"], *WORDS["region"], *_OF_ORDERS, "category", "brand", "user", "file")),
    "quantity": frozenset(["price", "total"]),
}
EXACT, PART = 200, 100
TITLES = ("name", "nombre", "nom", "nome", "naam", "nazwa", "navn", "namn", "nimi", "title", "titel", "titre")


def split_name(name: str) -> list[str]:
    """Return the words of a column's name, small and without accents.

    >>> split_name("CustomerID"), split_name("Stück_zahl"), split_name("order date")
    (['customer', 'id'], ['stuck', 'zahl'], ['order', 'date'])
    """
    spaced = re.sub(r"(?<=[a-z0-9ß-ÿ])(?=[A-ZÀ-Þ])", " ", name)
    plain = "".join(one for one in unicodedata.normalize("NFKD", spaced) if not unicodedata.combining(one))
    return re.findall(r"[^\W_]+", plain.casefold().replace("ł", "l"))


def rate_name(meaning: str, name: str) -> int:
    """Return how well a name says that its column is of a meaning; 0: not at all."""
    parts = split_name(name)
    joined, words = "".join(parts), WORDS[meaning]
    core = "".join(part for part in parts if part not in NUMBERS)
    for whole in (joined, core, core.removesuffix("id"), core.removesuffix("s"), core.removesuffix("nr")):
        if whole in words:
            return EXACT - words.index(whole)
    wrong = set(parts) & WRONG[meaning]
    if meaning == "description" and set(parts) & set(TITLES) and set(parts) & set(WORDS["item"]):
        return EXACT + 1
    found = [words.index(part) for part in parts if part in words]
    if not found or wrong:
        return 0
    return PART - min(found) + (5 if set(parts) & NUMBERS and meaning in ("customer", "item") else 0)
