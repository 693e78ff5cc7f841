//! The folder of published instances with known optima, which tests find through `TASKWORK_DATA`.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::workspace;

/// The environment variable that tests read.
pub(crate) const VARIABLE: &str = "TASKWORK_DATA";

/// The folder of the instances, and whether they are there.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Data {
    Present(PathBuf),
    Absent(PathBuf),
}

impl Data {
    /// Checks the folder named by `TASKWORK_DATA`, or `../shared/data` next to the workspace.
    pub(crate) fn locate() -> Self {
        // Relative to the user's current folder, because each test runs in its own package's folder.
        let chosen = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = chosen.unwrap_or_else(|| beside(&workspace::root()));
        Self::at(std::path::absolute(&folder).unwrap_or(folder))
    }

    fn at(folder: PathBuf) -> Self {
        // Looks for the index, not just the folder: an empty mount point holds no data.
        if folder.join("INDEX.tsv").is_file() { Self::Present(folder) } else { Self::Absent(folder) }
    }

    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Present(folder) | Self::Absent(folder) => folder,
        }
    }

    /// Prints a prominent warning if the instances are absent.
    ///
    /// # Errors
    /// They are absent and `ci` is set: there a skipped layer counts as a failure.
    pub(crate) fn require(&self, ci: bool) -> Result<()> {
        let Self::Absent(folder) = self else { return Ok(()) };
        let what = format!(
            "no instances with known optima: {} has no INDEX.tsv. Set {VARIABLE} to the folder that has it",
            folder.display()
        );
        if ci {
            bail!("{what}. Under CI=true this is a failure");
        }
        println!("\n!!! WARNING: {what}.\n!!! Tests against published answers are SKIPPED.");
        Ok(())
    }
}

fn beside(root: &Path) -> PathBuf {
    let around = root.parent().unwrap_or(root);
    around.join("shared").join("data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_next_to_workspace() {
        assert_eq!(beside(Path::new("/some/clone")), Path::new("/some/shared/data"));
    }

    #[test]
    fn absent_data_fails_only_in_ci() {
        // The sources hold no index.
        let absent = Data::at(workspace::root().join("xtask"));
        assert_eq!(absent, Data::Absent(workspace::root().join("xtask")));
        assert!(absent.require(false).is_ok());
        let error = absent.require(true).expect_err("CI must not skip").to_string();
        assert!(error.contains("xtask has no INDEX.tsv. Set TASKWORK_DATA"), "{error}");
    }

    #[test]
    fn present_data_is_enough_for_ci() {
        assert!(Data::Present("anywhere".into()).require(true).is_ok());
    }
}
