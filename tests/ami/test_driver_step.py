"""The driver's step against an apt, a dkms and a modinfo of a few lines each; the real build takes minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.ami.gpu_fakes import PROVISION, fake_modinfo, module, program

KERNEL = "6.12.117+deb13-cloud-amd64"
OPEN = "Dual MIT/GPL"
DEBIAN = {
    "nvidia-kernel-dkms": "550.163.01-2",
    "nvidia-open-kernel-dkms": "550.163.01-2",
    "libcuda1": "550.163.01-2",
    "nvidia-smi": "550.163.01-2",
    "nvidia-persistenced": "550.163.01-1",
    "firmware-nvidia-gsp": "550.163.01-2",
    f"linux-headers-{KERNEL}": "6.12.117-1",
}
LISTS = ("requirements-gpu.txt", "requirements-gpu-blackwell.txt")
HEAD = f"DKMS (dkms-3.2.2) make.log for nvidia-current-open/550.163.01 for kernel {KERNEL} (x86_64)\n"
MAKE_LOG = """\
  CC [M]  /var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.o
nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'
make[1]: *** [Makefile:1961: .] Error 2
"""


class Root:
    """A root folder and the programs that act on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.modules = folder / "root", folder / "bin", folder / "modules"
        self.calls = folder / "calls"
        self.candidates = folder / "candidates"
        self.candidates.mkdir()
        self.wheels = folder / "recipe/wheels"
        self.wheels.mkdir(parents=True)
        (folder / "recipe/provision").mkdir()
        for name in ("50-driver.sh", "common.sh", "unpack-wheels.sh", *LISTS):
            (folder / "recipe/provision" / name).write_bytes((PROVISION / name).read_bytes())
        self.step = folder / "recipe/provision/50-driver.sh"
        self.kernel(KERNEL)
        fake_modinfo(self.bin, self.modules, KERNEL)
        self.offer(**DEBIAN)
        self.tool("apt-get", f"[ ! -e {folder}/built ] || cp -r {folder}/built/* {self.modules}/")
        self.tool("apt-mark")
        self.tool("dkms")
        self.tool("systemctl")
        self.program(
            "apt-cache",
            f"if [ $# -eq 1 ]; then echo '  release v=13,o=Debian,n=trixie,c=main,b=amd64'; exit; fi\n"
            f"version=$(cat {self.candidates}/$2 2>/dev/null) || version='(none)'\n"
            "if [ $1 = madison ]; then\n"
            "    [ \"$version\" = '(none)' ] || printf ' %s | %s | a source\\n' $2 8.0-1 $2 $version; exit\n"
            "fi\n"
            'printf \'%s:\\n  Installed: (none)\\n  Candidate: %s\\n\' "$2" "$version"',
        )
        self.program("dpkg-query", "case $* in *Status*) printf 'libcuda1\\tinstalled\\nnvidia-smi\\tremoved\\n' ;; "
                     f"*) cat {self.candidates}/libcuda1 ;; esac")  # fmt: skip
        program(self.folder / "usr/local/libexec/regiondag", "python", "cat >/dev/null; echo 'CuPy works'")
        self.modules.mkdir()

    def program(self, name: str, text: str) -> None:
        program(self.bin, name, text)

    def tool(self, name: str, text: str = "") -> None:
        """A program that notes how it was called."""
        self.program(name, f'echo "{name} $*" >>{self.calls}\n{text}')

    def kernel(self, name: str) -> None:
        (self.folder / "lib/modules" / name).mkdir(parents=True)
        (self.folder / "lib/modules" / name / "modules.builtin").touch()

    def offer(self, **versions: str) -> None:
        for name, version in versions.items():
            (self.candidates / name).write_text(f"{version}\n")

    def withdraw(self, *names: str) -> None:
        for name in names:
            (self.candidates / name).unlink()

    def builds(self, name: str, recorded: str = "550.163.01", licence: str = "NVIDIA") -> None:
        """Let apt-get install end with a module."""
        module(self.modules.parent / "built", name, recorded, licence)

    def add_wheels(self) -> None:
        lines = {line for name in LISTS for line in (PROVISION / name).read_text().splitlines()}
        for line in lines:
            name, equal, version = line.partition("==")
            if equal:
                path = self.wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
                with zipfile.ZipFile(path, "w") as wheel:
                    wheel.writestr(f"{name.split('-')[0]}/__init__.py", "")
        with zipfile.ZipFile(self.wheels / "cupy_cuda12x-14.2.0-cp313-none-any.whl", "w") as wheel:
            for folder in ("cupy", "cupyx", "cupy_backends"):
                wheel.writestr(f"{folder}/__init__.py", "")
        (self.wheels / "cupy_cuda12x-14.2.0-py3-none-any.whl").unlink()

    def run(self, driver: str, outlet: str = "disk", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(self.step)],
            capture_output=True,
            text=True,
            check=False,
            env={
                "PATH": f"{self.bin}:{os.environ['PATH']}",
                "REGIONDAG_ROOT": str(self.folder),
                "OUTLET": outlet,
                **({"DRIVER": driver} if driver else {}),
                **variables,
            },
        )

    def called(self, name: str) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if line.split()[0] == name]

    def recorded(self) -> list[str]:
        path = self.folder / "var/lib/regiondag/recorded"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith("WHEEL_")]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def refused(root: Root, driver: str, **variables: str) -> str:
    """Run it; return its last line, which says why it failed, after making sure that nothing was recorded."""
    done = root.run(driver, **variables)
    assert done.returncode == 1, done.stdout + done.stderr
    assert root.recorded() == []
    assert root.called("apt-mark") == []
    last = done.stderr.splitlines()[-1]
    assert last.startswith("50-driver: ERROR: ")
    return last.removeprefix("50-driver: ERROR: ")


@pytest.mark.parametrize("driver", ["none", ""])
def test_none(root, driver):
    done = root.run(driver)
    assert (done.returncode, done.stderr) == (0, "")
    assert root.recorded() == ["DRIVER=none", f"KERNEL={KERNEL}"]
    assert not root.calls.exists()


def test_none_without_a_kernel(root):
    (root.folder / "lib/modules" / KERNEL / "modules.builtin").unlink()
    assert root.run("none").returncode == 0
    assert root.recorded() == ["DRIVER=none"]


def test_closed(root):
    root.builds("nvidia-current")
    root.add_wheels()
    done = root.run("closed")
    assert done.returncode == 0, done.stderr
    assert root.called("apt-get") == [
        f"apt-get install -y --no-install-recommends linux-headers-{KERNEL} libcuda1 nvidia-smi nvidia-persistenced "
        "nvidia-kernel-dkms"
    ]
    assert root.called("dkms") == []
    assert root.called("apt-mark") == ["apt-mark hold libcuda1"]  # what is installed, not what was removed
    assert root.recorded() == ["FABRIC_MANAGER=none", "DRIVER=closed", "DRIVER_VERSION=550.163.01", f"KERNEL={KERNEL}"]
    assert done.stdout.splitlines()[-1] == f"50-driver: nvidia-current 550.163.01 for kernel {KERNEL}"
    assert "CuPy works" in done.stdout
    assert list(root.folder.glob("usr/local/lib/python3.*/dist-packages/cupy/__init__.py"))


def test_nnlibs_kernels_come_along_where_they_were_laid_among_the_wheels(root):
    root.builds("nvidia-current")
    root.add_wheels()
    (root.wheels / "kernels").mkdir()
    for name in ("gather.cu", "batch.cuh"):
        (root.wheels / "kernels" / name).write_text(name)
    assert "will do without them" not in root.run("closed").stdout
    kernels = root.folder / "usr/local/libexec/regiondag/kernels"
    assert {path.name: path.stat().st_mode & 0o777 for path in kernels.iterdir()} == {
        "gather.cu": 0o644,
        "batch.cuh": 0o644,
    }
    shutil.rmtree(root.wheels / "kernels")
    done = root.run("closed")
    assert done.returncode == 0
    assert f"50-driver: nnlib's kernels are not in {root.wheels.parent}/provision/../wheels/kernels" in done.stdout
    assert not kernels.exists()


def test_a_machine_that_stays_itself_goes_on_getting_kernels(root):
    """Nobody would see for months that its kernel had no security updates any more."""
    root.builds("nvidia-current")
    root.add_wheels()
    root.offer(**{"linux-headers-cloud-amd64": "6.12.117-1"})
    assert root.run("closed", "machine").returncode == 0
    assert " linux-headers-cloud-amd64 " in root.called("apt-get")[0]
    assert root.called("apt-mark") == []


def test_a_second_run_installs_nothing(root):
    root.builds("nvidia-current")
    root.add_wheels()
    root.run("closed")
    root.calls.unlink()
    done = root.run("closed")
    assert done.returncode == 0, done.stderr
    assert root.called("apt-get") == []
    assert root.recorded() == ["FABRIC_MANAGER=none", "DRIVER=closed", "DRIVER_VERSION=550.163.01", f"KERNEL={KERNEL}"]


def test_the_unit_that_keeps_gpus_awake_is_enabled_and_debians_module_list_is_not(root):
    root.builds("nvidia-current")
    root.add_wheels()
    (root.folder / "usr/lib/systemd/system").mkdir(parents=True)
    (root.folder / "usr/lib/systemd/system/nvidia-persistenced.service").touch()
    (root.folder / "etc/modules-load.d").mkdir(parents=True)
    (root.folder / "etc/modules-load.d/nvidia.conf").write_text("nvidia-drm\n")
    assert root.run("closed").returncode == 0
    assert root.called("systemctl") == ["systemctl enable nvidia-persistenced.service"]
    assert (root.folder / "etc/modules-load.d/nvidia.conf").readlink() == Path("/dev/null")


def test_open_from_debian(root):
    root.builds("nvidia-current-open", "550.163.01-open", OPEN)
    root.add_wheels()
    done = root.run("open")
    assert done.returncode == 0, done.stderr
    assert root.called("apt-get")[0].endswith(" libcuda1 nvidia-smi nvidia-persistenced nvidia-open-kernel-dkms")
    assert root.recorded()[:2] == ["FABRIC_MANAGER=none", "DRIVER=open"]


def test_open_from_nvidia_where_its_repository_is_a_source(root):
    newer = "550.163.01-1"
    root.offer(**{"nvidia-kernel-open-dkms": newer, "nvidia-driver-cuda": newer, "libcuda1": newer})
    root.withdraw("firmware-nvidia-gsp")
    root.builds("nvidia", "550.163.01-open", OPEN)
    root.add_wheels()
    done = root.run("open")
    assert done.returncode == 0, done.stderr
    assert root.called("apt-get")[0].endswith(" nvidia-driver-cuda nvidia-persistenced nvidia-kernel-open-dkms")


def test_dkms_is_asked_for_the_images_kernel_when_the_package_built_for_another(root):
    root.builds("nvidia-current")
    root.add_wheels()
    root.tool("apt-get")
    root.tool("dkms", f"cp -r {root.modules.parent}/built/* {root.modules}/")
    assert root.run("closed").returncode == 0
    assert root.called("dkms") == [f"dkms autoinstall -k {KERNEL}"]


@pytest.mark.parametrize(
    ("driver", "package", "component"),
    [
        ("closed", "nvidia-kernel-dkms", "non-free"),
        ("closed", "libcuda1", "non-free"),
        ("closed", "nvidia-persistenced", "contrib"),
        ("closed", "firmware-nvidia-gsp", "non-free-firmware"),
        ("open", "nvidia-open-kernel-dkms", "contrib"),
    ],
)
def test_a_component_that_is_missing(root, driver, package, component):
    root.withdraw(package)
    assert refused(root, driver).startswith(
        f"no package {package} in the apt sources of this root (their components: main); it belongs to Debian's "
        f"component {component}: add `contrib non-free non-free-firmware` after `main`"
    )
    assert root.called("apt-get") == []


def test_headers_of_another_kernel(root):
    root.withdraw(f"linux-headers-{KERNEL}")
    root.program("dpkg-query", "exit 1")
    assert refused(root, "closed").startswith(
        f"no package linux-headers-{KERNEL} in the apt sources: they hold another kernel than this root ({KERNEL})"
    )


def make_log(root: Root, text: str) -> None:
    path = root.folder / "var/lib/dkms/nvidia-current-open/550.163.01/build/make.log"
    path.parent.mkdir(parents=True)
    path.write_text(HEAD + text)


def test_debians_open_module_is_mended_for_kernels_of_2026(root):
    call = "    r = pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size);\n"
    source = root.folder / "usr/src/nvidia-current-open-550.163.01/nvidia/nv-pci.c"
    source.parent.mkdir(parents=True)
    source.write_text(call)
    make_log(root, MAKE_LOG)
    root.builds("nvidia-current-open", "550.163.01-open", OPEN)
    root.add_wheels()
    root.tool("apt-get", "exit 100")
    root.tool("dpkg", f"cp -r {root.modules.parent}/built/* {root.modules}/")
    done = root.run("open")
    assert done.returncode == 0, done.stderr
    assert root.called("dpkg") == ["dpkg --configure -a"]
    assert root.called("dkms") == []
    assert source.read_text() == call.replace("size)", "size, 0)")
    assert "mended, and built again" in done.stdout


def test_machines_with_nvswitches_get_a_fabric_manager_of_the_drivers_version(root):
    root.builds("nvidia-current-open", "550.163.01-open", OPEN)
    root.add_wheels()
    root.offer(**{"nvidia-fabricmanager": "570.10-1", "nvidia-fabricmanager-550": "550.163.01-1", "nvlsm": "2025.1"})
    done = root.run("open", FABRIC_MANAGER="needed")
    assert done.returncode == 0, done.stderr
    assert root.called("apt-get")[1:] == [
        "apt-get install -y --no-install-recommends nvidia-fabricmanager-550=550.163.01-1 nvlsm"
    ]
    assert root.called("systemctl") == ["systemctl enable nvidia-fabricmanager.service"]
    assert root.recorded()[0] == "FABRIC_MANAGER=550.163.01"


def test_no_image_for_nvswitches_without_their_fabric_manager(root):
    root.builds("nvidia-current")
    root.add_wheels()
    root.offer(**{"nvidia-fabricmanager": "570.10-1"})
    message = refused(root, "closed", FABRIC_MANAGER="needed")
    assert "no nvidia-fabricmanager of the driver's version 550.163.01 (seen: nvidia-fabricmanager 8.0-1" in message
    assert "--apt-source FILE" in message


def test_a_driver_too_old_for_the_machines_is_not_built(root):
    message = refused(root, "open", LEAST_DRIVER="570")
    assert message.startswith("the GPUs that this image is for need driver 570 or newer, and the apt sources have 550")
    assert root.called("apt-get") == []
    module(root.modules, "nvidia-current-open", "550.163.01-open", OPEN)
    assert refused(root, "open", LEAST_DRIVER="570").startswith("this root has driver 550.163.01, and 570 or newer")


def test_blackwell_gets_libraries_that_know_it(root):
    newer = "580.95.05-1"
    root.offer(**{"nvidia-kernel-open-dkms": newer, "nvidia-driver-cuda": newer, "libcuda1": newer})
    root.builds("nvidia", "550.163.01-open", OPEN)
    (root.modules.parent / "built/nvidia/version").write_text("580.95.05\n")
    root.add_wheels()
    program(root.folder / "usr/local/libexec/regiondag", "python", 'cat >/dev/null; echo "compiles for $*"')
    done = root.run("open", LEAST_DRIVER="570")
    assert done.returncode == 0, done.stderr
    assert "compiles for - 75 80 86 89 90 100 103 120\n" in done.stdout
    assert "WHEEL_nvidia_cuda_nvrtc_cu12=12.9.86" in (root.folder / "var/lib/regiondag/recorded").read_text()


def test_a_module_that_does_not_build(root):
    root.tool("apt-get", "exit 100")
    make_log(root, MAKE_LOG)
    done = root.run("open")
    assert done.returncode == 1
    assert "    nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'" in done.stderr
    assert "bake with --driver closed" in done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"50-driver: ERROR: no NVIDIA module for the image's kernel {KERNEL} (open driver); the reason is above"
    )
    assert root.recorded() == []
    assert root.called("dkms") == []  # it takes minutes, and has been tried


def test_a_build_that_ended_for_another_reason(root):
    make_log(root, "".join(f"line {number}\n" for number in range(40)) + "No space left on device\n")
    done = root.run("closed")
    assert done.returncode == 1
    assert "    No space left on device\n" in done.stderr
    assert "line 20\n" not in done.stderr
    assert "updates or backports" in done.stderr


def test_no_build_at_all(root):
    root.tool("apt-get", "exit 100")
    done = root.run("closed")
    assert done.returncode == 1
    assert "dkms left no make.log; apt's messages above say why" in done.stderr


def test_module_and_library_of_two_versions(root):
    root.builds("nvidia-current")
    root.add_wheels()
    root.offer(libcuda1="1:580.95.05-1")
    assert refused(root, "closed").startswith("the module is of driver 550.163.01 and libcuda1 of 580.95.05;")


def test_the_other_kind_of_driver_is_there(root):
    module(root.modules, "nvidia-current", "550.163.01")
    assert refused(root, "open").startswith(
        f"this root has the closed driver (nvidia-current) for kernel {KERNEL}, and open is asked for"
    )


def test_a_missing_wheel(root):
    root.builds("nvidia-current")
    root.add_wheels()
    next(root.wheels.glob("cupy_cuda12x*")).unlink()
    done = root.run("closed")
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith(f"unpack-wheels: ERROR: no wheel of cupy-cuda12x==14.2.0 in {root.wheels}; ")
    assert "wheels.sh beside the recipe's folder" in sentence
    assert "./wheels.sh 3." in sentence


def test_a_cupy_that_does_not_work(root):
    root.builds("nvidia-current")
    root.add_wheels()
    program(root.folder / "usr/local/libexec/regiondag", "python", "cat >/dev/null; exit 1")
    assert refused(root, "closed").startswith("CuPy does not work in this image")


def test_no_kernel(root):
    (root.folder / "lib/modules" / KERNEL / "modules.builtin").unlink()
    assert refused(root, "closed").startswith("no kernel in /lib/modules, and a driver belongs to one;")


@pytest.mark.parametrize("driver", ["Closed", "proprietary", "open; reboot"])
def test_what_is_no_driver(root, driver):
    assert refused(root, driver) == f"DRIVER is '{driver}'; it can be none, closed or open"
