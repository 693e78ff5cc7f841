//! Debian packages, built by `dpkg-deb`.

use std::{fmt::Write as _, fs, process::Command};

use anyhow::{Context as _, Result, ensure};

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
    /// If `dpkg-deb` fails.
    pub(crate) fn make(&self, installed: &Files, origin: &Origin) -> Result<Vec<u8>> {
        let mut control = Files::default();
        control.add("control", self.control(installed))?;
        for (name, script) in &self.scripts {
            control.add_program(name, script.as_str())?;
        }
        let folder = tempfile::tempdir().context("a folder to pack")?;
        let (root, package) = (folder.path().join("root"), folder.path().join("package"));
        installed.write(&root)?;
        control.write(&root.join("DEBIAN"))?;
        // Independent of the user's umask.
        run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&root))?;
        // With gzip: the output of xz depends on the number of processors.
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "-Zgzip", "-z9", "--build"]).args([&root, &package]);
        run(build.env("SOURCE_DATE_EPOCH", origin.epoch.to_string()))?;
        fs::read(&package).context("the package cannot be read")
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

/// Runs a command that must succeed.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, error.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
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
        Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 1_700_000_000 }
    }

    fn files(names: &[&str]) -> Files {
        let mut files = Files::default();
        for name in names {
            files.add_program(name, *name).unwrap();
        }
        files
    }

    #[test]
    fn package_is_reproducible_and_readable_by_dpkg() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(package().file());
        let Ok(made) = package().make(&files(&["usr/bin/leaves"]), &origin()) else {
            let is_there = Command::new("dpkg-deb").arg("--version").output().is_ok();
            assert!(!is_there, "dpkg-deb makes no package");
            eprintln!("there is no dpkg-deb: not tested");
            return;
        };
        assert!(made == package().make(&files(&["usr/bin/leaves"]), &origin()).unwrap(), "the bytes differ");
        fs::write(&path, made).unwrap();
        let output = Command::new("dpkg-deb").arg("--info").arg(&path).output().unwrap();
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
        assert!(text.ends_with("\n -- A <a@example.org>  Tue, 14 Nov 2023 22:13:20 +0000\n"), "{text}");
    }
}
