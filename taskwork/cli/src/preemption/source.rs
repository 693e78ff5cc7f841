//! The option `--notice`: the source of preemption notices.

use std::{path::PathBuf, str::FromStr};

/// A source of notices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Only signals.
    None,
    /// The metadata service of AWS: spot instances.
    Aws,
    /// The metadata service of Google Cloud: spot and preemptible machines.
    Gcp,
    /// The metadata service of Azure: scheduled events.
    Azure,
    /// A file that appears.
    File(PathBuf),
    /// The time limit of the job of Slurm.
    Slurm,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "none" => Self::None,
            "aws" => Self::Aws,
            "gcp" => Self::Gcp,
            "azure" => Self::Azure,
            "slurm" => Self::Slurm,
            _ => match text.strip_prefix("file:") {
                Some(path) if !path.is_empty() => Self::File(path.into()),
                _ => return Err("expected aws, gcp, azure, slurm, file:PATH or none".to_owned()),
            },
        })
    }
}

/// Parses a source of notices from an option or a variable. An empty variable counts as unset.
///
/// # Errors
/// If there is no source of this name.
pub fn source(text: &str) -> Result<Source, String> {
    if text.is_empty() { Ok(Source::None) } else { text.parse() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_parsed_by_name() {
        assert_eq!("aws".parse(), Ok(Source::Aws));
        assert_eq!("file:/run/leave:1".parse(), Ok(Source::File("/run/leave:1".into())));
        for wrong in ["", "AWS", "file:", "ftp:x", "file"] {
            assert!(wrong.parse::<Source>().unwrap_err().contains("file:PATH"), "{wrong:?}");
        }
    }
}
