"""All that is spoken with HTCondor: quoting, templates, queries, matching, submitting."""
