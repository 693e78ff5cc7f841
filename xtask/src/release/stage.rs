//! The installed files of a release below a prefix, and the archive and the packages that are made of them.
//!
//! The manifests of packaged crates name these files as `target/release/stage/…`: cargo-deb and cargo-generate-rpm replace
//! `target/release` by the folder of the target.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    build::{self, Machine},
    origin::Origin,
    project::Project,
    succeed,
};

/// The released documents, and the examples that they name. Links between them work, since they keep their names.
const DOCUMENTS: [&str; 12] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "bnb-framework/docs",
    "deploy",
    "docs",
    "tsp-example/README.md",
    "tsp-example/instances",
];

/// The shells with completions, with the names of the files below a prefix.
const SHELLS: [(&str, &str, &str, &str); 3] = [
    ("bash", "share/bash-completion/completions", "", ""),
    ("fish", "share/fish/vendor_completions.d", "", ".fish"),
    ("zsh", "share/zsh/site-functions", "_", ""),
];

/// A build of the release in a folder of its own.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    /// The folder of the installed tools.
    pub(super) tools: &'a Path,
    pub(super) origin: &'a Origin,
    pub(super) project: &'a Project,
    /// The maintainer of the packages.
    pub(super) maintainer: &'a str,
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    /// The folder for the artefacts.
    pub(super) artefacts: PathBuf,
}

impl Stage<'_> {
    /// Returns a command with the source as its working folder.
    fn command(&self, program: &str) -> Command {
        build::command(program, &self.source, &self.target, self.origin)
    }

    /// Returns a command that runs a tool of the release.
    fn tool(&self, name: &str) -> Command {
        build::command(self.tools.join("bin").join(name), &self.source, &self.target, self.origin)
    }

    /// Collects the files that all machines share in a folder: completions and man pages printed by the programs in the
    /// folder `programs`, units, documents and licences.
    ///
    /// # Errors
    /// If a program or a tool fails.
    pub(super) fn share(&self, programs: &Path) -> Result<PathBuf> {
        let shared = self.target.join("shared");
        if shared.exists() {
            fs::remove_dir_all(&shared).with_context(|| format!("cannot remove {}", shared.display()))?;
        }
        for program in self.project.programs() {
            self.manual(&programs.join(program), program, &shared)?;
        }
        let documents = shared.join("share/doc/taskwork");
        for folder in
            ["lib/systemd/system", "lib/sysusers.d", "share/doc/taskwork", "share/licenses/taskwork"]
        {
            fs::create_dir_all(shared.join(folder))?;
        }
        succeed(self.command("cp").args(["-r", "--parents"]).args(DOCUMENTS).arg(&documents))?;
        succeed(self.command("gzip").args(["-9n", "--recursive"]).arg(shared.join("share/man")))?;
        let units = "cp deploy/systemd/taskwork-*.service \"$0/lib/systemd/system\"
            cp deploy/systemd/sysusers.d/taskwork.conf \"$0/lib/sysusers.d\"";
        succeed(self.command("sh").args(["-e", "-c", units]).arg(&shared))?;
        self.licences(&shared.join("share/licenses/taskwork"))?;
        Ok(shared)
    }

    fn manual(&self, path: &Path, program: &str, shared: &Path) -> Result<()> {
        for (shell, folder, prefix, suffix) in SHELLS {
            let mut print = self.command_of(path);
            let output = print.args(["completions", shell]).output();
            let output = output.with_context(|| format!("cannot start {}", path.display()))?;
            ensure!(
                output.status.success() && !output.stdout.is_empty(),
                "{} has no completions for {shell}: {}",
                path.display(),
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
            fs::create_dir_all(shared.join(folder))?;
            fs::write(shared.join(folder).join(format!("{prefix}{program}{suffix}")), output.stdout)?;
        }
        let pages = shared.join("share/man/man1");
        succeed(self.command_of(path).args(["man", "--out"]).arg(&pages))?;
        let page = pages.join(format!("{program}.1"));
        ensure!(page.is_file(), "{} has not written {}", path.display(), page.display());
        Ok(())
    }

    /// Returns a command that runs a released program without the user's variables: its help contains their values.
    fn command_of(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        command.env_clear().current_dir(&self.source);
        command
    }

    /// Writes the licences of the code that is linked into each program, and those of the standard library.
    fn licences(&self, folder: &Path) -> Result<()> {
        succeed(self.command("cp").args(["LICENSE-APACHE", "LICENSE-MIT"]).arg(folder))?;
        let standard = build::sysroot()?.join("share/doc/rust/COPYRIGHT-library.html");
        succeed(self.command("cp").arg(&standard).arg(folder.join("rust-standard-library.html")))?;
        // The tools query cargo without the network, about the crates of all systems.
        succeed(self.command("cargo").args(["fetch", "--locked", "--quiet"]))?;
        let own = self.source.join("xtask/src/release");
        for package in &self.project.packages {
            let mut about = self.tool("cargo-about");
            about
                .args(["generate", "--all-features", "--frozen", "--fail", "--manifest-path"])
                .arg(&package.manifest);
            about
                .args([Machine::Arm, Machine::Intel].map(|machine| format!("--target={}", machine.target())));
            about.arg("--config").arg(own.join("about.toml"));
            about.arg("--output-file").arg(folder.join(format!("{}.txt", package.name)));
            succeed(about.arg(own.join("about.hbs")))?;
        }
        Ok(())
    }

    /// Installs the programs of a folder and the shared files, and makes the archive and the packages for a machine.
    ///
    /// # Errors
    /// If a file is missing, or a tool fails.
    pub(super) fn pack(&self, machine: Machine, programs: &Path, shared: &Path) -> Result<()> {
        let folder = self.target.join(machine.target()).join("release/stage");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)?;
        fs::create_dir_all(&self.artefacts)?;
        succeed(self.command("cp").arg("-r").arg(shared.join(".")).arg(&folder))?;
        let mut install = self.command("install");
        install.args(["-D", "--mode=755", "--target-directory"]).arg(folder.join("bin"));
        succeed(install.args(self.project.programs().map(|program| programs.join(program))))?;
        self.archive(machine, &folder)?;
        for package in self.project.packages.iter().filter(|package| package.is_packaged) {
            let target = ["--target", &machine.target(), "--output"].map(str::to_owned);
            let mut deb = self.tool("cargo-deb");
            deb.args(["--no-build", "--no-strip", "--locked", "--offline", "--maintainer", self.maintainer]);
            deb.args(["--package", &package.name]).args(&target).arg(&self.artefacts);
            succeed(&mut deb)?;
            let mut rpm = self.tool("cargo-generate-rpm");
            let crate_folder = package.manifest.parent().context("a manifest without a folder")?;
            rpm.arg("--package")
                .arg(crate_folder.strip_prefix(&self.source)?)
                .arg("--target-dir")
                .arg(&self.target);
            succeed(rpm.args(&target).arg(&self.artefacts))?;
        }
        Ok(())
    }

    /// Makes an archive that depends only on the names and the contents of the files.
    fn archive(&self, machine: Machine, folder: &Path) -> Result<()> {
        let top = format!("taskwork-{}", self.project.version);
        let mut tar = self.command("tar");
        tar.args(["--create", "--format=gnu", "--sort=name", "--owner=root:0", "--group=root:0"])
            // Independent of the user's umask.
            .args(["--mode=u=rwX,go=rX", &format!("--mtime=@{}", self.origin.epoch)])
            .args(["--use-compress-program=gzip -9n", &format!("--transform=s,^\\.,{top},"), "--file"])
            .arg(self.artefacts.join(format!("{top}-{}.tar.gz", machine.name())))
            .arg("--directory")
            .arg(folder);
        succeed(tar.arg("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    const PROGRAM: &str = "case $1 in
completions) echo \"for $2, HOME=$HOME\";;
man) mkdir -p \"$3\"; echo page > \"$3/${0##*/}.1\";;
esac";

    /// Runs a command in a folder, and returns its output.
    fn output(folder: &Path, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    #[ignore = "takes minutes, and needs the tools that `cargo xtask test --long` installs"]
    fn packages_of_given_programs_are_complete_and_independent_of_folder() {
        let root = workspace::root();
        let project = Project::read(&root).unwrap();
        let tools = super::super::tools().unwrap();
        let origin = Origin::find(&root, true).unwrap();
        let make = || {
            let folder = tempfile::tempdir().unwrap();
            let programs = folder.path().join("programs");
            fs::create_dir(&programs).unwrap();
            for program in project.programs() {
                crate::scripts::write(&programs.join(program), PROGRAM);
            }
            let source = folder.path().join("source");
            origin.export(&source).unwrap();
            let stage = Stage {
                tools: &tools,
                origin: &origin,
                project: &Project::read(&source).unwrap(),
                maintainer: "A <a@example.org>",
                source: source.clone(),
                target: folder.path().join("target"),
                artefacts: folder.path().join("artefacts"),
            };
            let shared = stage.share(&programs).unwrap();
            stage.pack(Machine::Arm, &programs, &shared).unwrap();
            folder
        };
        let [one, other] = [make(), make()].map(|folder| (folder.path().join("artefacts"), folder));
        assert_eq!(output(&one.0, "diff", &["--recursive", ".", other.0.to_str().unwrap()]), "");
        let mut names: Vec<_> = output(&one.0, "ls", &[]).lines().map(str::to_owned).collect();
        names.sort();
        let packages = ["", "-flow", "-routines", "-tsp"];
        let mut expected: Vec<_> =
            packages.iter().map(|name| format!("taskwork{name}_0.1.0_arm64.deb")).collect();
        expected.extend(packages.iter().map(|name| format!("taskwork{name}-0.1.0-1.aarch64.rpm")));
        expected.push("taskwork-0.1.0-aarch64.tar.gz".to_owned());
        expected.sort();
        assert_eq!(names, expected);

        let archive = output(&one.0, "tar", &["--list", "--file", "taskwork-0.1.0-aarch64.tar.gz"]);
        for name in [
            "bin/flow",
            "bin/routines",
            "bin/uts",
            "lib/systemd/system/taskwork-agent.service",
            "lib/systemd/system/taskwork-node@.service",
            "lib/sysusers.d/taskwork.conf",
            "share/doc/taskwork/tsp-example/instances/europe.csv",
            "share/licenses/taskwork/tsp-example.txt",
            "share/man/man1/tsp.1.gz",
            "share/zsh/site-functions/_tsp",
        ] {
            assert!(archive.contains(&format!("taskwork-0.1.0/{name}\n")), "{name}: {archive}");
        }
        assert!(!archive.contains("lib/systemd/system/zookeeper"), "{archive}");
        let deb = output(&one.0, "dpkg-deb", &["--contents", "taskwork_0.1.0_arm64.deb"]);
        for name in
            ["usr/bin/taskwork", "usr/share/man/man1/taskwork.1.gz", "usr/lib/sysusers.d/taskwork.conf"]
        {
            assert!(deb.contains(&format!(" ./{name}\n")), "{name}: {deb}");
        }
        let is_executable =
            |line: &str| line.starts_with("-rwxr-xr-x ") && line.ends_with("/deploy/scale/aws.sh");
        assert!(deb.lines().any(is_executable), "{deb}");
        let script = output(&one.0, "dpkg-deb", &["--info", "taskwork_0.1.0_arm64.deb", "prerm"]);
        assert!(
            script.contains("taskwork-node@*.service") && script.contains("taskwork-dashboard.service"),
            "{script}"
        );
    }

    /// Returns the link targets of a Markdown text that are files next to it.
    fn links(text: &str) -> impl Iterator<Item = &str> {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
        targets.filter(|target| !target.is_empty() && !target.contains("://"))
    }

    /// The manifest of `taskwork-operator` has the patterns `*.sh`, `*[!h]` and `*[!s]h`.
    #[test]
    fn documents_match_a_pattern_of_the_packages() {
        let listed = output(&workspace::root(), "git", &[&["ls-files"], &DOCUMENTS[..]].concat());
        let missing: Vec<_> = listed
            .lines()
            .filter(|name| name.ends_with("sh") && name.strip_suffix(".sh").is_none())
            .collect();
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn documents_link_only_to_released_files() {
        let root = workspace::root().canonicalize().unwrap();
        let listed = output(&root, "git", &[&["ls-files"], &DOCUMENTS[..]].concat());
        let mut missing = Vec::new();
        for name in listed.lines().filter(|name| Path::new(name).extension().is_some_and(|end| end == "md")) {
            let folder = root.join(name).parent().unwrap().to_owned();
            for link in links(&fs::read_to_string(root.join(name)).unwrap()) {
                let path = folder.join(link).canonicalize().unwrap_or_default();
                if !DOCUMENTS.iter().any(|document| path.starts_with(root.join(document))) {
                    missing.push(format!("{name}: {link}"));
                }
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
