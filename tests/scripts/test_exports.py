import importlib

from scripts.exports import list_public_modules, main, read_table, write_stub


def test_the_stubs_are_current():
    assert main(["--check"]) == 0


def test_a_stub_imports_each_name_from_its_module():
    text = write_stub("tools.py", {".core.tool": ("tool", "Tool")})
    assert "\nfrom .core.tool import Tool as Tool\nfrom .core.tool import tool as tool\n" in text


def test_the_package_is_the_first_of_the_public_modules():
    assert list_public_modules()[0] == "perdure"


def test_every_public_name_can_be_imported():
    public = {name: importlib.import_module(name) for name in list_public_modules()}
    names = [(module, name) for module in public for several in read_table(module).values() for name in several]
    assert all(getattr(public[module], name) is not None for module, name in names)
