//! The artefacts of a release: the archive, the packages, the images, the SBOM, and checksums.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};

use super::{
    build::Built,
    files::Files,
    image::{self, Image},
    licences,
    manual::{self, Place},
    origin::Origin,
    packaged,
    project::Project,
    sbom, tarball,
};

/// The programs with images, and the default arguments of each.
const IMAGES: [(&str, &[&str]); 2] = [("taskwork", &["--help"]), ("tsp", &["node"])];

/// The file with the checksums of all others.
pub(crate) const SUMS: &str = "SHA256SUMS";

/// The released documents, in addition to the folders.
const DOCUMENTS: [&str; 5] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "tsp-example/README.md"];

/// Folders of documents, and of the examples that they name.
const FOLDERS: [&str; 3] = ["deploy", "docs", "tsp-example/instances"];

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
        let archive = tarball::tar_gz(&self.archive()?, &format!("taskwork-{version}/"), self.origin.epoch)?;
        all.add(&format!("taskwork-{version}-x86_64.tar.gz"), archive)?;
        for (package, installed) in [packaged::taskwork(self)?, packaged::tsp(self)?] {
            all.add(&package.file(), package.make(&installed, self.origin)?)?;
        }
        for (program, arguments) in IMAGES {
            let image = Image { program, arguments, version };
            let files = image.make(&self.layer(program)?, self.origin)?;
            all.add_all(&format!("{program}-{version}.oci"), files)?;
        }
        all.add(&format!("taskwork-{version}.cdx.json"), self.bill_of_materials()?)?;
        let sums = sums(&all);
        all.add(SUMS, sums)?;
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
        self.add_licences(&mut documents, "")?;
        documents.add("taskwork.cdx.json", self.bill_of_materials()?)?;
        files.add_all("share/doc/taskwork", documents)?;
        Ok(files)
    }

    /// Returns the files of an image of a program.
    fn layer(&self, program: &str) -> Result<Files> {
        let mut files = Files::default();
        files.add_program(program, self.program(program)?)?;
        self.add_licences(&mut files, "licenses/")?;
        Ok(files)
    }

    fn add_licences(&self, files: &mut Files, folder: &str) -> Result<()> {
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            files.add(&format!("{folder}{name}"), self.read(name)?)?;
        }
        files.add(&format!("{folder}THIRD-PARTY-LICENSES.txt"), self.licences.as_str())
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

    fn bill_of_materials(&self) -> Result<String> {
        sbom::text(
            self.project,
            &self.built.packages,
            &sbom::libraries()?,
            &self.read("Cargo.lock")?,
            self.origin,
        )
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

/// Returns the checksums of files, in the form that `sha256sum --check` reads.
fn sums(files: &Files) -> String {
    files.iter().fold(String::new(), |mut sums, (name, file)| {
        let _infallible = writeln!(sums, "{}  {name}", image::hash(&file.bytes));
        sums
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workspace;

    #[test]
    fn documents_and_units_equal_the_source() {
        let project = Project::parse(&super::super::project::tests::small()).unwrap();
        let built = Built { programs: Files::default(), folder: "/none".into(), packages: BTreeSet::new() };
        let origin = Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 0 };
        let root = workspace::root();
        let parts = Parts {
            source: &root,
            project: &project,
            built: &built,
            origin: &origin,
            maintainer: "A <a@example.org>",
            licences: "text".to_owned(),
        };
        let documents = parts.documents().unwrap();
        for name in
            ["README.md", "docs/operating.md", "deploy/Containerfile", "tsp-example/instances/europe.csv"]
        {
            assert!(documents.get(name).is_some(), "{name}");
        }
        let units = parts.units().unwrap();
        assert!(units.iter().any(|(name, _)| name == "taskwork-node@.service"));
        assert!(!units.iter().any(|(name, _)| name.contains("zookeeper")));
        assert!(parts.user().unwrap().contains("\nu taskwork "));
        let missing = parts.layer("tsp").unwrap_err().to_string();
        assert_eq!(missing, "there is no program tsp");
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

    #[test]
    fn checksums_have_format_of_sha256sum() {
        let mut files = Files::default();
        files.add("b/c", "").unwrap();
        files.add("a", "").unwrap();
        let none = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sums(&files), format!("{none}  a\n{none}  b/c\n"));
    }
}
