import re
from pathlib import Path

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy
from conan.tools.system.package_manager import Apt


class Coetcd(ConanFile):
    """conan create packaging/conan [-o '&:system_packages=True']"""

    name = "coetcd"
    description = "Distributed locks, elections and transactions on etcd for C++20 coroutines"
    license = "BSL-1.0"
    topics = ("etcd", "asio", "coroutines", "distributed-lock")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"tls": [True, False], "system_packages": [True, False]}
    default_options = {"tls": True, "system_packages": False}
    no_copy_source = True

    def set_version(self):
        header = Path(self.recipe_folder, "../../include/coetcd/version.hpp").read_text()
        self.version = re.search(r'COETCD_VERSION_STRING "(.*)"', header)[1]

    def export_sources(self):
        root = Path(self.recipe_folder, "../..").resolve()
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "cmake/*", "packaging/*.in"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        if not self.options.system_packages:
            self.requires("boost/[>=1.81.0]", options={"header_only": True})
            self.requires("nlohmann_json/[>=3.11.2]")
            if self.options.tls:
                self.requires("openssl/[>=3.0 <4]")

    def system_requirements(self):
        if self.options.system_packages:
            packages = ["libboost1.81-dev", "nlohmann-json3-dev"]
            Apt(self).check(packages + (["libssl-dev"] if self.options.tls else []))

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        tools = CMakeToolchain(self)
        tools.cache_variables["COETCD_BUILD_TESTS"] = False
        tools.cache_variables["COETCD_BUILD_EXAMPLES"] = False
        tools.cache_variables["COETCD_TLS"] = bool(self.options.tls)
        tools.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        copy(self, "LICENSE", self.source_folder, Path(self.package_folder, "licenses"))
        CMake(self).install()

    def package_id(self):
        self.info.settings.clear()
        self.info.requires.clear()
        del self.info.options.system_packages

    def package_info(self):
        # The package's own CMake files say what there is: coetcd::coetcd, coetcd::compiled, coetcd::tls.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/coetcd"]
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
