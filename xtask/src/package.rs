//! `cargo xtask package`: packages the public crates, and builds and tests the packages without the rest of the
//! repository.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    step::{self, Step},
    workspace,
};

/// The public crates, as cargo describes them.
struct Public {
    target: PathBuf,
    packages: Vec<Value>,
}

impl Public {
    fn read() -> Result<Self> {
        let arguments = ["metadata", "--format-version", "1", "--locked", "--no-deps"];
        let output = workspace::command("cargo").args(arguments).output().context("cannot start cargo")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let mut metadata: Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata prints no JSON")?;
        let target = metadata["target_directory"].as_str().context("cargo metadata has no folder")?.into();
        let mut packages: Vec<Value> = serde_json::from_value(metadata["packages"].take())?;
        // An unpublished crate has an empty list of registries.
        packages.retain(|package| package["publish"].is_null());
        Ok(Self { target, packages })
    }

    /// Returns the names of the crates, and of the folders in their packages.
    fn names(&self) -> impl Iterator<Item = (String, String)> {
        self.packages.iter().map(|package| {
            let [name, version] = ["name", "version"].map(|key| package[key].as_str().unwrap_or_default());
            (name.to_owned(), format!("{name}-{version}"))
        })
    }
}

/// Packages the public crates, unpacks them into a workspace of their own, builds it, and runs its doc tests.
///
/// Cargo's own verification would compile the dependencies once for each package.
///
/// # Errors
/// A crate cannot be packaged, or a package needs a file that it does not contain.
pub(crate) fn run() -> Result<()> {
    let public = Public::read()?;
    let names: Vec<_> = public.names().map(|(name, _)| name).collect();
    let package = ["package", "--locked", "--no-verify", "--allow-dirty"].into_iter();
    let package = package.chain(names.iter().flat_map(|name| ["-p", name]));
    step::run_chain(&[Step::new("package", "cargo", package)])?;
    let alone = public.target.join("package/alone");
    unpack(&public, &alone)?;
    let manifest = alone.join("Cargo.toml").display().to_string();
    let target = public.target.join("package/build").display().to_string();
    let place = ["--workspace", "--manifest-path", &manifest, "--target-dir", &target];
    // With the examples, cargo builds the libraries with the features that doc tests need, and so only once.
    let build = ["build", "--lib", "--bins", "--examples"];
    step::run_chain(&[
        Step::new("build of the packages", "cargo", build.into_iter().chain(place)),
        Step::new("doc tests of the packages", "cargo", ["test", "--doc"].into_iter().chain(place)),
    ])
}

/// Unpacks the packages, and makes them a workspace in which each replaces the published crate of its name.
fn unpack(public: &Public, alone: &Path) -> Result<()> {
    if alone.exists() {
        fs::remove_dir_all(alone).with_context(|| format!("cannot remove {}", alone.display()))?;
    }
    fs::create_dir_all(alone).with_context(|| format!("cannot create {}", alone.display()))?;
    let members: Vec<_> = public.names().map(|(_, folder)| folder).collect();
    let mut manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[profile.dev]\ndebug = false\n\n[patch.crates-io]\n"
    );
    for (name, folder) in public.names() {
        let archive = public.target.join("package").join(format!("{folder}.crate"));
        // All times in a package are the same. With the present time instead, cargo notices changed files.
        let status = workspace::command("tar").arg("-xzmf").arg(&archive).arg("-C").arg(alone).status();
        let status = status.context("cannot start tar")?;
        ensure!(status.success(), "{} cannot be unpacked: {status}", archive.display());
        writeln!(manifest, "{name} = {{ path = \"{folder}\" }}")?;
    }
    fs::write(alone.join("Cargo.toml"), manifest)?;
    fs::copy(workspace::root().join("Cargo.lock"), alone.join("Cargo.lock"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_crates_have_metadata_readme_and_licences() {
        let public = Public::read().unwrap();
        assert!(public.names().any(|(name, _)| name == "taskwork"));
        for package in &public.packages {
            let name = &package["name"];
            for list in ["keywords", "categories"] {
                assert!(!package[list].as_array().unwrap().is_empty(), "{name} has no {list}");
            }
            let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
            for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
                assert!(folder.join(file).is_file(), "{name} has no {file}");
            }
        }
    }

    #[test]
    fn sources_of_public_crates_include_only_files_of_their_crate() {
        for package in Public::read().unwrap().packages {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap()).canonicalize().unwrap();
            let folder = manifest.parent().unwrap();
            let sources = workspace::command("git").args(["ls-files", "*.rs"]).current_dir(folder).output();
            let sources = String::from_utf8(sources.unwrap().stdout).unwrap();
            assert!(sources.contains("src/"), "git lists no sources in {}", folder.display());
            for source in sources.lines() {
                let text = fs::read_to_string(folder.join(source)).unwrap();
                let included = ["include_str!(\"", "include_bytes!(\""].map(|name| text.split(name).skip(1));
                for included in included.into_iter().flatten() {
                    let path = Path::new(source).with_file_name(included.split('"').next().unwrap());
                    let file = folder.join(path).canonicalize().unwrap();
                    // The nearest manifest belongs to the package with the file.
                    let of = file.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").is_file());
                    let of_source = folder.join(source);
                    let of_source =
                        of_source.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").is_file());
                    assert_eq!(of, of_source, "{source} includes {}", file.display());
                }
            }
        }
    }
}
