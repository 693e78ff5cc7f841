//! The directory in which an external program runs.

use std::{collections::BTreeSet, ffi::OsString, fs, io, path::Path};

use super::{File, told, work_dir::Folder};

/// The directory in which an external program runs, with its input files.
pub(super) struct Sandbox {
    folder: Folder,
    /// The names in use in the directory.
    names: BTreeSet<String>,
}

impl Sandbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { folder: Folder::new()?, names: BTreeSet::new() })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Copies a file into the directory, and returns its name for the program.
    ///
    /// It is a copy because a program may modify its arguments while other tasks read the same version.
    pub(super) fn put(&mut self, file: &File) -> io::Result<OsString> {
        let name = if self.names.insert(file.name().to_owned()) {
            // A program would take `-name` for an option.
            let before = if file.name().starts_with('-') { "./" } else { "" };
            format!("{before}{}", file.name())
        } else {
            // Two files may have the same name.
            let directory = self.directory()?;
            format!("{directory}/{}", file.name())
        };
        let to = self.path().join(&name);
        fs::copy(file.path(), to).map_err(|error| told(file.path(), "it cannot be copied", &error))?;
        Ok(name.into())
    }

    /// Copies a file to a path in the directory.
    pub(super) fn put_at(&mut self, path: &str, file: &File) -> io::Result<()> {
        self.create_folder_of(path)?;
        self.names.insert(path.to_owned());
        let copied = fs::copy(file.path(), self.path().join(path));
        copied.map(drop).map_err(|error| told(file.path(), &format!("it cannot be copied to {path}"), &error))
    }

    /// Creates the folders of a path in the directory. Arguments do not get their names.
    pub(super) fn create_folder_of(&mut self, path: &str) -> io::Result<()> {
        let Some((folder, _)) = path.rsplit_once('/') else { return Ok(()) };
        self.names.extend(path.split('/').next().map(str::to_owned));
        let folder = self.path().join(folder);
        fs::create_dir_all(&folder).map_err(|error| told(&folder, "it cannot be created", &error))
    }

    /// Creates a directory, and returns its name.
    fn directory(&mut self) -> io::Result<String> {
        let mut number = 2_u64;
        while self.names.contains(&number.to_string()) {
            number += 1;
        }
        let name = number.to_string();
        let path = self.path().join(&name);
        fs::create_dir(&path).map_err(|error| told(&path, "it cannot be created", &error))?;
        self.names.insert(name.clone());
        Ok(name)
    }
}
