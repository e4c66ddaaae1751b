"""Which names a vault can list without asking anybody far away. Above: assembly. Below: vaults."""

from .file_vault import FileVault
from .vault import FirstOf, MemoryVault, Vault


def listed(vault: Vault) -> list[str]:
    """The names in memory and in files of one's own; of other vaults none, for it may take long to ask them.

    Nor of the environment, where a prefix covers more than secrets.
    """
    if isinstance(vault, FirstOf):
        return list(dict.fromkeys([name for each in vault.vaults for name in listed(each)]))
    return vault.names() if isinstance(vault, (MemoryVault, FileVault)) else []
