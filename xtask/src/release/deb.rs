//! Debian packages: an `ar` archive of two `tar` archives, as described in deb(5). Not built with
//! `dpkg-deb`, so that the same files give the same bytes regardless of the installed tools.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::{files::Files, origin::Origin, tarball};

/// A package.
#[derive(Debug)]
pub(crate) struct Package<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    /// The maintainer, as `Name <address>`.
    pub(crate) maintainer: &'a str,
    /// Other packages, by the kind of relation: `Depends: …`.
    pub(crate) relations: Vec<String>,
    /// A one-line description.
    pub(crate) synopsis: &'a str,
    /// A description of some sentences.
    pub(crate) description: &'a str,
    /// The scripts for installation and removal, by name: `postinst`.
    pub(crate) scripts: Vec<(&'static str, String)>,
}

/// The architecture, as Debian calls it.
const ARCHITECTURE: &str = "amd64";

impl Package<'_> {
    /// Returns the name of its file.
    pub(crate) fn file(&self) -> String {
        format!("{}_{}_{ARCHITECTURE}.deb", self.name, self.version)
    }

    /// Builds the package from the installed files, with paths below `/`.
    ///
    /// # Errors
    /// If the name of a script leaves the folder.
    pub(crate) fn make(&self, installed: &Files, origin: &Origin) -> Result<Vec<u8>> {
        let mut control = Files::default();
        control.add("control", self.control(installed))?;
        for (name, script) in &self.scripts {
            control.add_program(name, script.as_str())?;
        }
        let control = tarball::tar_gz(&control, "./", origin.epoch)?;
        let data = tarball::tar_gz(installed, "./", origin.epoch)?;
        let members =
            [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control[..]), ("data.tar.gz", &data[..])];
        ar(&members, origin.epoch)
    }

    fn control(&self, installed: &Files) -> String {
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {ARCHITECTURE}\nMaintainer: {}\nInstalled-Size: {}\n",
            self.name,
            self.version,
            self.maintainer,
            installed.bytes().div_ceil(1024)
        );
        for relation in &self.relations {
            let _infallible = writeln!(text, "{relation}");
        }
        let _infallible =
            writeln!(text, "Section: science\nPriority: optional\nDescription: {}", self.synopsis);
        for line in self.description.lines() {
            let _infallible = writeln!(text, " {}", if line.is_empty() { "." } else { line });
        }
        text
    }

    /// Returns the changelog in Debian's format, which refers to the project's own.
    ///
    /// # Errors
    /// Never in practice: it is compressed in memory.
    pub(crate) fn changelog(&self, origin: &Origin) -> Result<Vec<u8>> {
        let (name, version) = (self.name, self.version);
        let text = format!(
            "{name} ({version}) unstable; urgency=medium\n\n  * Commit {}. CHANGELOG.md says what has changed.\n\n \
             -- {}  {}\n",
            origin.commit,
            self.maintainer,
            origin.mail_date()
        );
        tarball::gzip(text.as_bytes())
    }
}

/// Makes an archive by `ar`.
///
/// # Errors
/// If a name or a number does not fit.
fn ar(members: &[(&str, &[u8])], epoch: u64) -> Result<Vec<u8>> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let header = format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, bytes.len());
        (header.len() == 60)
            .then_some(())
            .with_context(|| format!("{name} does not fit into an archive by ar"))?;
        archive.extend(header.as_bytes());
        archive.extend(*bytes);
        // Each member starts at an even offset.
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    fn package() -> Package<'static> {
        Package {
            name: "leaves",
            version: "1.2.3",
            maintainer: "A <a@example.org>",
            relations: vec!["Depends: trees (= 1.2.3)".to_owned()],
            synopsis: "counts leaves",
            description: "It counts.\n\nAll of them.",
            scripts: vec![("postinst", "#!/bin/sh\nset -e\n".to_owned())],
        }
    }

    fn origin() -> Origin {
        Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 1_795_539_600 }
    }

    fn files(names: &[&str]) -> Files {
        let mut files = Files::default();
        for name in names {
            files.add_program(name, *name).unwrap();
        }
        files
    }

    #[test]
    fn package_is_independent_of_file_order() {
        let one = package().make(&files(&["usr/bin/leaves", "usr/bin/count"]), &origin()).unwrap();
        assert!(one == package().make(&files(&["usr/bin/count", "usr/bin/leaves"]), &origin()).unwrap());
        assert!(one != package().make(&files(&["usr/bin/leaves"]), &origin()).unwrap());
    }

    #[test]
    fn ar_archive_has_even_offsets_and_no_owner() {
        let archive = String::from_utf8(ar(&[("a", b"x"), ("debian-binary", b"2.0\n")], 7).unwrap()).unwrap();
        let a = "a               7           0     0     100644  1         `\nx\n";
        let b = "debian-binary   7           0     0     100644  4         `\n2.0\n";
        assert_eq!(archive, format!("!<arch>\n{a}{b}"));
        assert!(ar(&[("a-name-that-is-too-long", b"")], 0).is_err());
    }

    #[test]
    fn package_is_readable_by_dpkg() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(package().file());
        fs::write(&path, package().make(&files(&["usr/bin/leaves"]), &origin()).unwrap()).unwrap();
        let Ok(output) = Command::new("dpkg-deb").arg("--info").arg(&path).output() else {
            eprintln!("there is no dpkg-deb: not tested");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in
            ["Package: leaves", "Depends: trees (= 1.2.3)", "Installed-Size: 1", "Description: counts leaves"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        let root = folder.path().join("root");
        let status = Command::new("dpkg-deb").arg("-x").arg(&path).arg(&root).status().unwrap();
        assert!(status.success());
        assert_eq!(fs::read_to_string(root.join("usr/bin/leaves")).unwrap(), "usr/bin/leaves");
    }

    #[test]
    fn changelog_has_debian_format() {
        use std::io::Read as _;
        let mut text = String::new();
        flate2::read::GzDecoder::new(&package().changelog(&origin()).unwrap()[..])
            .read_to_string(&mut text)
            .unwrap();
        assert!(
            text.starts_with("leaves (1.2.3) unstable; urgency=medium\n\n  * Commit 1f1e8d6aa0b1."),
            "{text}"
        );
        assert!(text.ends_with("\n -- A <a@example.org>  Tue, 24 Nov 2026 17:00:00 +0000\n"), "{text}");
    }
}
