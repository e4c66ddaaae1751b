import perdure
from scripts.exports import main, write_stub


def test_the_stub_is_current():
    assert main(["--check"]) == 0


def test_the_stub_imports_each_name_from_its_module():
    text = write_stub({".core.tool": ("tool", "Tool")})
    assert "from .core.tool import Tool as Tool\nfrom .core.tool import tool as tool\n" in text


def test_every_public_name_can_be_imported():
    assert all(getattr(perdure, name) is not None for name in vars(perdure)["__all__"])
