//! The output file of a page.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use taskwork::lowlevel::OutputFile;
use taskwork_cli::{Failure, command::print};

/// The options for the output file of a page.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Output {
    /// The file to write, such as run.html; - for standard output.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long, requires = "file")]
    force: bool,
}

impl Output {
    /// Checks the options before the page is made, which may take long.
    ///
    /// # Errors
    /// If the file exists and must not be replaced, or both the page and JSON go to standard output.
    pub(crate) fn check(&self, json: bool) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Ok(()) };
        if is_standard(file) {
            let refused = "--json and -o - both write to standard output: choose a file, or only one of them";
            return if json { Err(Failure::usage(refused)) } else { Ok(()) };
        }
        match fs::metadata(file) {
            Ok(there) if there.is_dir() => {
                Err(Failure::usage(format!("{} is a folder: name a file in it", file.display())))
            }
            Ok(there) if there.is_file() && !self.force => Err(exists(file)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Writes the page if a file is given, and reports its name and size.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self, page: impl FnOnce() -> String, json: bool) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Ok(()) };
        let page = page();
        if is_standard(file) {
            let mut out = io::stdout().lock();
            return match out.write_all(page.as_bytes()).and_then(|()| out.flush()) {
                // A reader that closes the pipe early is no error.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    Err(Failure::failed(format!("the page cannot be written to standard output: {error}")))
                }
                Ok(()) | Err(_) => Ok(()),
            };
        }
        write(file, &page, self.force)?;
        if !json {
            print(&format!("written: {} ({} KiB)\n", file.display(), page.len().div_ceil(1024)));
        }
        Ok(())
    }
}

fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn exists(file: &Path) -> Failure {
    Failure::usage(format!(
        "{} is there already: choose another name, or replace it by --force",
        file.display()
    ))
}

fn write(file: &Path, page: &str, force: bool) -> Result<(), Failure> {
    let refused = |error: io::Error| match error.kind() {
        ErrorKind::AlreadyExists => exists(file),
        _ => Failure::failed(format!("{} cannot be written: {error}", file.display())),
    };
    let is_special = || fs::metadata(file).is_ok_and(|there| !there.is_file());
    if force || is_special() {
        return OutputFile::new(file).write(|to| to.write_all(page.as_bytes())).map_err(refused);
    }
    // A file created since the check is kept.
    let mut to = OpenOptions::new().create_new(true).write(true).open(file).map_err(refused)?;
    to.write_all(page.as_bytes()).map_err(|error| {
        // An incomplete page is useless.
        let _ = fs::remove_file(file);
        refused(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(file: &Path, force: bool) -> Output {
        Output { file: Some(file.to_owned()), force }
    }

    fn write(file: &Path, text: &str, force: bool) -> Result<(), String> {
        let output = output(file, force);
        output
            .check(false)
            .and_then(|()| output.write(|| text.to_owned(), true))
            .map_err(|refused| refused.to_string())
    }

    #[test]
    fn existing_file_is_replaced_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.html");
        write(&file, "one", false).unwrap();
        let refused = write(&file, "two", false).unwrap_err();
        assert!(refused.contains("run.html is there already") && refused.contains("--force"), "{refused}");
        // The file may also appear after the check.
        let refused = output(&file, false).write(|| "two".to_owned(), true).unwrap_err().to_string();
        assert!(refused.contains("is there already"), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        write(&file, "three", true).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn device_is_written_without_force_and_link_is_kept_with_it() {
        write(Path::new("/dev/null"), "page", false).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("run.html"), folder.path().join("link"));
        fs::write(&file, "one").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "two", true).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
    }

    #[test]
    fn write_errors_are_reported_with_path() {
        let folder = tempfile::tempdir().unwrap();
        let refused = write(folder.path(), "", true).unwrap_err();
        assert!(refused.contains("is a folder"), "{refused}");
        let refused = write(&folder.path().join("no/run.html"), "", false).unwrap_err();
        assert!(refused.contains("no/run.html cannot be written"), "{refused}");
        let standard = output(Path::new("-"), false);
        assert!(standard.check(true).unwrap_err().to_string().contains("-o -"));
        assert!(standard.check(false).is_ok());
    }
}
