//! The artefacts of a release: the archive and the packages.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::{
    build::Built,
    files::Files,
    licences,
    manual::{self, Place},
    origin::Origin,
    packaged,
    project::Project,
    tarball,
};

/// The released documents, in addition to the folders.
const DOCUMENTS: [&str; 6] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "tsp-example/README.md",
];

/// Folders of documents, and of the examples that they name.
const FOLDERS: [&str; 4] = ["bnb-framework/docs", "deploy", "docs", "tsp-example/instances"];

/// The parts that several artefacts have.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) source: &'a Path,
    pub(crate) project: &'a Project,
    pub(crate) built: &'a Built,
    pub(crate) origin: &'a Origin,
    /// The maintainer of the packages.
    pub(crate) maintainer: &'a str,
    /// The licences of third-party code.
    pub(crate) licences: String,
}

impl<'a> Parts<'a> {
    /// Finds the licences, too.
    ///
    /// # Errors
    /// If those of something are not known.
    pub(crate) fn gather(
        source: &'a Path,
        project: &'a Project,
        built: &'a Built,
        origin: &'a Origin,
        maintainer: &'a str,
    ) -> Result<Self> {
        let mut parts = Self { source, project, built, origin, maintainer, licences: String::new() };
        parts.licences = licences::text(project, &built.packages, &parts.read("LICENSE-APACHE")?)?;
        Ok(parts)
    }

    /// Makes everything, and returns it under the names in the folder of the release.
    ///
    /// # Errors
    /// If a part is missing, or a program fails.
    pub(crate) fn artefacts(&self) -> Result<Files> {
        let version = &self.project.version;
        let mut all = Files::default();
        let archive = tarball::tar_gz(&self.archive()?, &format!("taskwork-{version}"), self.origin.epoch)?;
        all.add(&format!("taskwork-{version}-x86_64.tar.gz"), archive)?;
        for (package, installed) in [packaged::taskwork(self)?, packaged::tsp(self)?] {
            all.add(&package.file(), package.make(&installed, self.origin)?)?;
        }
        Ok(all)
    }

    /// Returns the files of the archive, with their paths below `/usr/local`.
    fn archive(&self) -> Result<Files> {
        let mut files = Files::default();
        for (name, program) in self.built.programs.iter() {
            files.put(&format!("bin/{name}"), program.kind, program.bytes.clone())?;
            for (name, file) in manual::of(self.built, name, Place::Local)?.iter() {
                files.put(name, file.kind, file.bytes.clone())?;
            }
        }
        for (name, unit) in self.units()? {
            files.add(&format!("lib/systemd/system/{name}"), unit)?;
        }
        files.add("lib/sysusers.d/taskwork.conf", self.user()?)?;
        let mut documents = self.documents()?;
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            documents.add(name, self.read(name)?)?;
        }
        documents.add("THIRD-PARTY-LICENSES.txt", self.licences.as_str())?;
        files.add_all("share/doc/taskwork", documents)?;
        Ok(files)
    }

    /// Returns the documents and examples, under their names in the source, so that links between them work.
    pub(crate) fn documents(&self) -> Result<Files> {
        documents(self.source)
    }

    /// Returns the units of systemd that run programs of the project, by name.
    pub(crate) fn units(&self) -> Result<Vec<(String, String)>> {
        let folder = self.folder("deploy/systemd")?;
        let names = folder.iter().map(|(name, _)| name);
        let names = names.filter(|name| name.starts_with("taskwork-") && name.ends_with(".service"));
        names.map(|name| Ok((name.to_owned(), self.read(&format!("deploy/systemd/{name}"))?))).collect()
    }

    /// Returns the description of the user that the units run as.
    pub(crate) fn user(&self) -> Result<String> {
        self.read("deploy/systemd/sysusers.d/taskwork.conf")
    }

    /// Returns the bytes of a program.
    pub(crate) fn program(&self, name: &str) -> Result<Vec<u8>> {
        let program = self.built.programs.get(name).with_context(|| format!("there is no program {name}"))?;
        Ok(program.bytes.clone())
    }

    /// Reads a file of the source.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.source.join(name);
        fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
    }

    /// Reads a folder of the source.
    pub(crate) fn folder(&self, name: &str) -> Result<Files> {
        Files::of_folder(&self.source.join(name))
    }
}

/// Returns the documents and examples of a source.
fn documents(source: &Path) -> Result<Files> {
    let mut files = Files::default();
    for name in DOCUMENTS {
        let path = source.join(name);
        let text = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        files.add(name, text)?;
    }
    for folder in FOLDERS {
        files.add_all(folder, Files::of_folder(&source.join(folder))?)?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, process::Command};

    use super::*;
    use crate::workspace;

    const PROGRAM: &str = "case $1 in
completions) echo \"for $2\";;
man) echo page > \"$3/${0##*/}.1\";;
esac";

    #[test]
    fn release_contains_archive_and_packages_independent_of_folder() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            eprintln!("there is no dpkg-deb: not tested");
            return;
        }
        let project = Project::parse(&super::super::project::tests::small()).unwrap();
        let origin = Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 1_700_000_000 };
        let source = workspace::root();
        let artefacts = || {
            let folder = tempfile::tempdir().unwrap();
            for program in ["taskwork", "tsp"] {
                crate::scripts::write(&folder.path().join(program), PROGRAM);
            }
            let programs = Files::of_folder(folder.path()).unwrap();
            let built = Built { programs, folder: folder.path().to_owned(), packages: BTreeSet::new() };
            let maintainer = "A <a@example.org>";
            let licences = "text".to_owned();
            let parts = Parts {
                source: &source,
                project: &project,
                built: &built,
                origin: &origin,
                maintainer,
                licences,
            };
            parts.artefacts().unwrap()
        };
        let first = artefacts();
        let names: Vec<_> = first.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["taskwork-0.1.0-x86_64.tar.gz", "taskwork-tsp_0.1.0_amd64.deb", "taskwork_0.1.0_amd64.deb"]
        );
        assert_eq!(first.differences(&artefacts()), [""; 0]);
        let folder = tempfile::tempdir().unwrap();
        first.write(folder.path()).unwrap();
        let listed = |program: &str, arguments: &[&str], name: &str| {
            let output =
                Command::new(program).args(arguments).arg(folder.path().join(name)).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let archive = listed("tar", &["-tzf"], names[0]);
        for name in [
            "bin/tsp",
            "lib/systemd/system/taskwork-node@.service",
            "lib/sysusers.d/taskwork.conf",
            "share/doc/taskwork/THIRD-PARTY-LICENSES.txt",
            "share/doc/taskwork/deploy/Containerfile",
            "share/doc/taskwork/tsp-example/instances/europe.csv",
            "share/man/man1/tsp.1",
        ] {
            assert!(archive.contains(&format!("taskwork-0.1.0/{name}\n")), "{name}: {archive}");
        }
        assert!(!archive.contains("lib/systemd/system/zookeeper"), "{archive}");
        let package = listed("dpkg-deb", &["--contents"], names[2]);
        for name in
            ["usr/bin/taskwork", "usr/share/man/man1/taskwork.1.gz", "usr/lib/sysusers.d/taskwork.conf"]
        {
            assert!(package.contains(&format!(" ./{name}\n")), "{name}: {package}");
        }
    }

    /// Returns the link targets of a Markdown text that are files next to it.
    fn links(text: &str) -> impl Iterator<Item = &str> {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
        targets.filter(|target| !target.is_empty() && !target.contains("://"))
    }

    #[test]
    fn documents_link_only_to_released_files() {
        let mut documents = documents(&workspace::root()).unwrap();
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            documents.add(name, "").unwrap();
        }
        let mut missing = Vec::new();
        for (name, file) in
            documents.iter().filter(|(name, _)| Path::new(name).extension().is_some_and(|end| end == "md"))
        {
            let folder = Path::new(name).parent().unwrap();
            for link in links(std::str::from_utf8(&file.bytes).unwrap()) {
                let mut path = folder.to_owned();
                for part in Path::new(link) {
                    if part == ".." {
                        assert!(path.pop(), "{name}: {link}");
                    } else {
                        path.push(part);
                    }
                }
                let path = path.to_str().unwrap();
                let is_there = |(name, _): (&str, _)| name == path || name.starts_with(&format!("{path}/"));
                if !documents.iter().any(is_there) {
                    missing.push(format!("{name}: {link}"));
                }
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
