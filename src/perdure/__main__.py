"""Entry point of `python -m perdure`: the `perdure` command, with no imports from the working folder."""

from ._cli.import_path import remove_working_folder_from_path

if __name__ == "__main__":
    remove_working_folder_from_path()  # before anything else is imported

from ._cli.entry import main

if __name__ == "__main__":
    main()
