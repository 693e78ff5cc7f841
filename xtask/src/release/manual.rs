//! The shell completions and man pages of programs.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::{build::Built, files::Files, tarball};

/// The shells that there are completions for.
const SHELLS: [Shell; 3] = [
    Shell {
        name: "bash",
        site: "share/bash-completion/completions",
        vendor: "share/bash-completion/completions",
    },
    Shell {
        name: "fish",
        site: "share/fish/vendor_completions.d",
        vendor: "share/fish/vendor_completions.d",
    },
    Shell { name: "zsh", site: "share/zsh/site-functions", vendor: "share/zsh/vendor-completions" },
];

/// A shell, and where it looks for completions.
struct Shell {
    name: &'static str,
    /// Below `/usr/local`.
    site: &'static str,
    /// Below `/usr`, from packages of Debian.
    vendor: &'static str,
}

/// The installation prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below `/usr/local`, or in a user's folder.
    Local,
    /// Below `/usr`, by a package of Debian, in which man pages are compressed.
    Package,
}

/// Asks a program for its completions and man pages, and returns them under the names where they are installed.
///
/// # Errors
/// If the program fails, or prints nothing.
pub(crate) fn of(built: &Built, program: &str, place: Place) -> Result<Files> {
    let path = built.folder.join(program);
    let mut files = Files::default();
    for shell in &SHELLS {
        let name = match (shell.name, place) {
            ("bash", _) => format!("{}/{program}", shell.site),
            ("fish", _) => format!("{}/{program}.fish", shell.site),
            (_, Place::Local) => format!("{}/_{program}", shell.site),
            (_, Place::Package) => format!("{}/_{program}", shell.vendor),
        };
        let text = said(&path, &["completions", shell.name])?;
        ensure!(!text.is_empty(), "{} has no completions for {}", path.display(), shell.name);
        files.add(&name, text)?;
    }
    let pages = tempfile::tempdir().context("a folder for man pages")?;
    said(&path, &["man", "--out", &pages.path().to_string_lossy()])?;
    let pages = Files::of_folder(pages.path())?;
    ensure!(pages.get(&format!("{program}.1")).is_some(), "{} has written no man page", path.display());
    for (name, page) in pages.iter() {
        match place {
            Place::Local => files.add(&format!("share/man/man1/{name}"), page.bytes.clone())?,
            Place::Package => files.add(&format!("share/man/man1/{name}.gz"), tarball::gzip(&page.bytes)?)?,
        }
    }
    Ok(files)
}

/// Returns the output of a program. It runs without the user's variables, since its help would contain their values.
fn said(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).env_clear().stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    let line = || format!("{} {}", program.display(), arguments.join(" "));
    ensure!(output.status.success(), "{}: {}: {}", line(), output.status, error.trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A program that is a script.
    fn built(folder: &Path, script: &str) -> Built {
        let path = folder.join("tsp");
        crate::scripts::write(&path, script);
        Built { programs: Files::default(), folder: folder.to_owned(), packages: BTreeSet::new() }
    }

    const GOOD: &str = r#"case $1 in
completions) echo "for $2, HOME=$HOME";;
man) echo page > "$3/tsp.1"; echo page > "$3/tsp-node.1";;
esac"#;

    #[test]
    fn completions_and_pages_have_standard_paths() {
        let folder = tempfile::tempdir().unwrap();
        let built = built(folder.path(), GOOD);
        let names = |place| {
            let files = of(&built, "tsp", place).unwrap();
            files.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        let common = ["share/bash-completion/completions/tsp", "share/fish/vendor_completions.d/tsp.fish"];
        let local = ["share/man/man1/tsp-node.1", "share/man/man1/tsp.1", "share/zsh/site-functions/_tsp"];
        assert_eq!(names(Place::Local), [&common[..], &local].concat());
        let package =
            ["share/man/man1/tsp-node.1.gz", "share/man/man1/tsp.1.gz", "share/zsh/vendor-completions/_tsp"];
        assert_eq!(names(Place::Package), [&common[..], &package].concat());
        let files = of(&built, "tsp", Place::Local).unwrap();
        assert_eq!(files.get(common[0]).unwrap().bytes, b"for bash, HOME=\n");
    }

    #[test]
    fn failing_or_silent_program_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = |script| of(&built(folder.path(), script), "tsp", Place::Local).unwrap_err().to_string();
        assert!(error("echo what >&2; exit 3").ends_with("completions bash: exit status: 3: what"));
        assert!(error("exit 0").contains("no completions for bash"));
        assert!(error("echo something").contains("no man page"));
    }
}
