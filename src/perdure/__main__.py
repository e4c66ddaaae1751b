"""`python -m perdure` is the command `perdure`, without modules from the folder in which it runs."""

from .cli.safe_import_path import remove_working_folder_from_path

if __name__ == "__main__":
    remove_working_folder_from_path()  # before anything else is imported

from .cli.main import main

if __name__ == "__main__":
    main()
