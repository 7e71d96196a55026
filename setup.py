"""Build of the extension orfit.core._core; everything else is declared in pyproject.toml.

The core, src/orfit/core/core.c, is compiled once for each pair of number types and each target.
Every object file exports one table of functions, and dispatch.c selects a table at import.

Environment variables:
ORFIT_TARGETS: "all" (default), or "native": only the best target of this machine's processor
ORFIT_STRICT: if set, a warning of the compiler is an error
"""

import os
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = Path("src/orfit/core")
# Real numbers of a row, and numbers of the small algebra.
NUMBERS = {"f64": ("double", "double"), "f32": ("float", "double")}
# Targets of x86-64, best first: the features that the compiler uses and dispatch.c checks. (Older
# compilers and zig do not know -march=x86-64-v3.)
V3 = ["avx", "avx2", "bmi", "bmi2", "fma"]
V4 = [*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
X86 = {"v4": V4, "v3": V3, "base": []}
# No fused multiply-add and no reassociation: every target computes the same bits.
EXACT = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
GNU = ["-std=gnu99", "-g0", "-fvisibility=hidden", *EXACT]
STRICT = ["-Wall", "-Wextra", "-Werror"]
# A free-threaded Python has no stable ABI.
ABI3 = not sysconfig.get_config_var("Py_GIL_DISABLED")


class BuildCore(build_ext):
    """Compiles the core's object files, then the extension that contains them."""

    def initialize_options(self):
        super().initialize_options()
        self.cython_c_in_temp = True

    def build_extension(self, ext):
        built = Path(self.get_ext_fullpath(ext.name))
        changed = max(Path(name).stat().st_mtime for name in [*ext.sources, *ext.depends])
        if not self.force and built.exists() and built.stat().st_mtime > changed:
            return
        targets = self.find_targets()
        ext.define_macros.append(("TARGETS", " ".join(f"TARGET({name})" for name in targets)))
        ext.extra_compile_args = [] if self.uses_msvc() else GNU
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [
                pool.submit(self.compile_core, numbers, name, options)
                for name, options in targets.items()
                for numbers in NUMBERS
            ]
        ext.extra_objects = [object_file for job in jobs for object_file in job.result()]
        self.force = True  # the object files changed
        super().build_extension(ext)

    def compile_core(self, numbers, target, options):
        """Compile the core for one pair of number types and one target."""
        real, small = NUMBERS[numbers]
        macros = [("REAL", real), ("SMALL", small), ("TABLE", f"orfit_{numbers}_{target}")]
        if not self.uses_msvc():
            options = [*GNU, "-Wno-psabi", *options]
            options += STRICT if os.environ.get("ORFIT_STRICT") else []
        return self.compiler.compile(
            [str(CORE / "core.c")],
            output_dir=str(Path(self.build_temp, f"{numbers}_{target}")),
            macros=macros,
            extra_postargs=options,
        )

    def find_targets(self):
        """The targets by name, best first, with the options of the compiler."""
        if self.uses_msvc():
            return {"plain": ["/O2", "/DORFIT_PLAIN"]}
        if "__x86_64__" not in self.predefined_macros():
            return {"base": []}
        targets = {name: [f"-m{feature}" for feature in features] for name, features in X86.items()}
        wanted = os.environ.get("ORFIT_TARGETS", "all")
        if wanted not in {"all", "native"}:
            raise SystemExit(f'ORFIT_TARGETS is "all" or "native", not {wanted!r}')
        if wanted == "all":
            return targets
        native = self.predefined_macros("-march=native")
        for name, features in X86.items():
            if {f"__{feature.upper()}__" for feature in features} <= native:
                return {name: targets[name]}
        return targets

    def predefined_macros(self, *options):
        """The names of the macros that the compiler defines."""
        command = [*self.compiler.compiler, *options, "-dM", "-E", "-x", "c", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define")}

    def uses_msvc(self):
        """Whether the compiler is Microsoft's, which has no vector types."""
        return self.compiler.compiler_type == "msvc"


setup(
    cmdclass={"build_ext": BuildCore},
    ext_modules=[
        Extension(
            "orfit.core._core",
            [str(CORE / "_core.pyx"), str(CORE / "dispatch.c")],
            include_dirs=[str(CORE)],
            depends=sorted(map(str, [*CORE.glob("*.[ch]"), "setup.py"])),
            define_macros=[("Py_LIMITED_API", "0x030B0000"), ("CYTHON_LIMITED_API", "1")]
            if ABI3
            else [],
            py_limited_api=ABI3,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {},
)
