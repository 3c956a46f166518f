"""The Packer template: what it must say, what packer itself says of it, and what it makes of a region."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import hcl2
import pytest

from tests.workflows.aws_policy import check_policy, check_wide_resources, statements
from tests.workflows.fake_aws import REGION, environment, serve, tags_of

AMI = Path(__file__).parents[2] / "ami"
TEMPLATE = AMI / "worker.pkr.hcl"
GIVEN = {"region": REGION, "ssh_from": '["203.0.113.7/32"]'}
POLICY = AMI / "policies" / "packer.json"

# What a build against the real service needs beside what packer 1.6.6 asks of this one.
UNSEEN = {
    "ec2:DescribeRegions",  # skip_region_validation leaves it out here
    "ec2:DescribeSubnets",  # with subnet_id
    "ec2:DescribeInstanceStatus",  # newer packers wait for the machine with it
    "ec2:DescribeSnapshots",  # newer packers wait for the image's snapshot with it
    "ec2:DeregisterImage",  # Ctrl-C after the image was made
    "ec2:DeleteSnapshot",
}

packer = pytest.mark.skipif(not shutil.which("packer"), reason="packer is not installed")

# All that packer 1.6.6 refuses, and nothing else: the two settings that make IMDSv2 the only way.
MODERN = (r'\n  metadata_options \{\n(?:    \w+ += [\w"]+\n)+  \}', r'\n  imds_support = "v2\.0"')


def plain(value: object) -> object:
    """Take the quotation marks off that python-hcl2 leaves on texts, and its marks off blocks."""
    if isinstance(value, str):
        return value.strip('"')
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items() if not str(key).startswith("__")}
    return value


@pytest.fixture(scope="module")
def template() -> dict:
    parsed = plain(hcl2.loads(TEMPLATE.read_text()))
    assert isinstance(parsed, dict)
    return parsed


@pytest.fixture(scope="module")
def source(template) -> dict:
    return template["source"][0]["amazon-ebs"]["worker"]


def test_the_metadata_service_wants_tokens(source):
    (options,) = source["metadata_options"]
    assert options == {"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1}
    assert source["imds_support"] == "v2.0"


def test_the_disk_is_encrypted_gp3_and_goes_with_its_machine(source):
    (disk,) = source["launch_block_device_mappings"]
    assert disk["volume_type"] == "gp3"
    assert disk["encrypted"] is True
    assert disk["delete_on_termination"] is True


def test_everything_that_is_made_is_tagged(template, source):
    assert [source[key] for key in ("tags", "snapshot_tags", "run_tags", "run_volume_tags")] == ["${local.tags}"] * 4
    (values,) = template["locals"]
    assert all(key in values["tags"] for key in ("regiondag:manifest", "regiondag:htcondor", "regiondag:driver"))


def test_every_variable_is_typed_and_described(template):
    for variable in template["variable"]:
        ((name, declared),) = variable.items()
        assert re.fullmatch(r"\$\{.+\}|string|bool|number", str(declared["type"])), name
        assert declared["description"].endswith("."), name
        for rule in declared.get("validation", []):
            assert rule["error_message"].endswith("."), name


def test_there_is_no_secret_and_no_place_for_one(template, source):
    text = TEMPLATE.read_text() + (AMI / "plugins.pkr.hcl").read_text()
    assert not re.search(r"AKIA|ASIA|BEGIN [A-Z ]*PRIVATE|eyJ", text)
    words = {"access_key", "secret_key", "token", "password", "ssh_password", "ssh_private_key_file", "profile"}
    assert not words & set(source)
    assert not words & {name for variable in template["variable"] for name in variable}
    assert source["ssh_clear_authorized_keys"] is True


def test_values_reach_the_shell_as_its_environment_only(template):
    shells = [block["shell"] for block in template["build"][0]["provisioner"] if "shell" in block]
    assert len(shells) == 2
    assert not any("var." in line or "local." in line for shell in shells for line in shell["inline"])


def test_the_recipe_is_the_one_of_all_images(template):
    copied = [block["file"]["source"] for block in template["build"][0]["provisioner"] if "file" in block]
    assert copied == ["${path.root}/provision", "${path.root}/wheels"]
    assert (AMI / "provision" / "provision.sh").is_file()


def test_the_plugin_is_new_enough():
    parsed = plain(hcl2.loads((AMI / "plugins.pkr.hcl").read_text()))
    assert isinstance(parsed, dict)
    assert list(parsed) == ["packer"]
    assert parsed["packer"][0]["required_plugins"][0]["amazon"]["source"] == "github.com/hashicorp/amazon"


def old_template(folder: Path, **changes: str) -> Path:
    """Write what packer 1.6.6 can read: the template without the two settings that it refuses."""
    text = TEMPLATE.read_text()
    for pattern in MODERN:
        text, found = re.subn(pattern, "", text)
        assert found == 1
    for before, after in changes.items():
        text = text.replace(before, after)
    for name in ("provision", "wheels"):
        (folder / name).mkdir()
    (folder / "worker.pkr.hcl").write_text(text)
    return folder


def run_packer(*argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    given = [word for name, value in variables.items() for word in ("-var", f"{name}={value}")]
    command = ["packer", str(argv[0]), *given, *map(str, argv[1:])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env = {**kept, **environment("http://127.0.0.1:9"), "CHECKPOINT_DISABLE": "1", "PACKER_NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, check=False)


@packer
def test_packer_formats_it_like_this():
    done = run_packer("fmt", "-check", "-diff", AMI)
    assert done.returncode == 0, done.stdout


@packer
def test_packer_accepts_it(tmp_path):
    done = run_packer("validate", old_template(tmp_path), **GIVEN)
    assert done.returncode == 0, done.stdout + done.stderr


@packer
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("region", "Frankfurt", "must be the name of an AWS region"),
        ("region", "", "must be the name of an AWS region"),
        ("driver", "nouveau", "must be none, closed or open"),
        ("htcondor", "23", "two numbers with a point"),
        ("htcondor", "23.9; reboot", "two numbers with a point"),
        ("source_ami_name", "*", "must be a Debian image"),
        ("source_ami_owner", "self", "12 digits"),
        ("subnet_id", "10.0.0.0/8", "must be an id such as subnet-"),
        ("ssh_from", '["0.0.0.0/0"]', "the whole internet is not one of"),
        ("ssh_from", "[]", "the whole internet is not one of"),
        ("disk_size", "4", "alone has 8 GiB"),
        ("skip_pci_option", "[]", "bool"),
        ("unknown", "1", "undefined -var variable"),
    ],
)
def test_packer_refuses_values_that_make_no_image(tmp_path, name, value, message):
    done = run_packer("validate", old_template(tmp_path), **{**GIVEN, name: value})
    assert done.returncode != 0
    assert message.lower() in re.sub(r"\s+", " ", done.stdout + done.stderr).lower()


@packer
def test_packer_makes_an_ami_of_it_and_leaves_nothing_else(tmp_path):
    """Against a region without machines, hence without provisioners: what it asks for, under which tags."""
    with serve() as aws:
        base = aws.ec2.register_image("debian-13-amd64-20261101-1", "")
        base.owner_id, base.architecture, base.virtualization_type = "136693071363", "x86_64", "hvm"
        base.root_device_type = "ebs"
        extra = f'''
  custom_endpoint_ec2 = "{aws.url}"
  skip_region_validation = true
  skip_metadata_api_check = true
  skip_credential_validation = true
  communicator = "none"
'''
        folder = old_template(tmp_path, **{"  ssh_username ": extra + "  ssh_username "})
        path = folder / "worker.pkr.hcl"
        path.write_text(re.sub(r"\n  provisioner .*\n}\n", "\n}\n", path.read_text(), flags=re.S))
        done = run_packer("build", folder, **GIVEN, driver="none")
        assert done.returncode == 0, done.stdout + done.stderr
        (ami,) = [ami for ami in aws.ec2.amis.values() if ami.name.startswith("regiondag-none-")]
        tags = {tag["key"]: tag["value"] for tag in ami.get_tags()}
        assert tags["regiondag:htcondor"] == "23.9"
        assert tags["regiondag:manifest"].startswith("packer-")
        launch = next(call.arguments for call in aws.calls if call.action == "RunInstances")
        assert launch["BlockDeviceMapping.1.Ebs.VolumeType"] == "gp3"
        assert launch["BlockDeviceMapping.1.Ebs.Encrypted"] == "true"
        tagged = {
            launch[f"TagSpecification.{n}.ResourceType"]: tags_of(launch, f"TagSpecification.{n}.Tag") for n in (1, 2)
        }
        assert set(tagged) == {"instance", "volume"}
        assert all(found["regiondag:driver"] == "none" for found in tagged.values())
        assert {one._state.name for one in aws.ec2.all_instances()} == {"terminated"}
        del aws.ec2.amis[base.id]
        check_policy(POLICY, {call.name for call in aws.calls}, UNSEEN)


def test_the_tag_by_which_machines_may_be_ended_cannot_be_put_on_others():
    tagging = [one for one in statements(POLICY) if one["Action"] == ["ec2:CreateTags"]]
    assert any("instance/" in resource for one in tagging for resource in one["Resource"])
    for one in tagging:
        if any("instance/" in resource for resource in one["Resource"]):
            assert one["Condition"] == {"StringEquals": {"ec2:CreateAction": "RunInstances"}}


def test_the_policy_changes_nothing_without_naming_it():
    check_wide_resources(POLICY)
    keys = [one["Resource"] for one in statements(POLICY) if "ec2:CreateKeyPair" in one["Action"]]
    assert keys == [["arn:aws:ec2:*:*:key-pair/packer_*"]]
