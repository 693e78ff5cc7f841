//! The file of a program: kept or fetched, or the remedy if it is neither.

use std::{fmt, io, path::Path, sync::Arc};

use taskwork::{
    client::agents::Programs,
    companion::{FetchError, ObjectName},
};
use tokio::task;

use super::cache::{Cache, Pinned};

/// Why a program is not there.
#[derive(Debug)]
pub(super) enum Problem {
    Fetch(FetchError),
    /// An operation on its file has failed.
    File(io::Error),
    /// It was removed, or has another content, directly after it was written.
    Changed,
}

/// Makes sure that a program is in the folder with its content: otherwise it is fetched, if that is allowed.
///
/// # Errors
/// If it is not there then.
pub(super) async fn ensure(
    cache: &Arc<Cache>,
    programs: &Programs,
    name: ObjectName,
    may_fetch: bool,
) -> Result<Pinned, Problem> {
    let get = || {
        let here = Arc::clone(cache);
        async move { blocking(move || here.get(name)).await.map_err(Problem::File) }
    };
    if let Some(file) = get().await? {
        return Ok(file);
    }
    if !may_fetch {
        return Err(Problem::Changed);
    }
    programs.withdraw(name);
    let part = cache.part().map_err(Problem::File)?;
    let file = part.reopen().map_err(Problem::File)?;
    programs.fetch(name, file).await.map_err(Problem::Fetch)?;
    let here = Arc::clone(cache);
    blocking(move || here.keep(name, part)).await.map_err(Problem::File)?;
    get().await?.ok_or(Problem::Changed)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    task::spawn_blocking(work).await.map_err(io::Error::other)?
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetch(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Changed => f.write_str("its file was removed or changed by another process"),
        }
    }
}

impl Problem {
    /// Returns the remedy for the user.
    pub(super) fn remedy(&self, folder: &Path) -> String {
        let folder = folder.display();
        match self {
            Self::Fetch(FetchError::Sink(error)) | Self::File(error)
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                format!(
                    "The disk of {folder} is full: remove other files, limit the programs there with --cache-gib, or give \
                     another folder with --cache"
                )
            }
            Self::Fetch(FetchError::Sink(_)) | Self::File(_) => {
                format!("Make {folder} readable and writable for the agent, or give another folder with --cache")
            }
            Self::Changed => format!("Let only agents write to {folder}"),
            Self::Fetch(_) => "If its submitter is gone, submit the program again with --bring from a machine that this one \
                 reaches"
                .to_owned(),
        }
    }
}

/// Returns the remedy for a program that cannot be started.
pub(super) fn not_started(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "The system forbids to run files of this folder (noexec): give another one with --cache"
        }
        io::ErrorKind::NotFound => {
            "The loader that the program names is not installed: build it for this system, statically for another \
             distribution of Linux"
        }
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock | io::ErrorKind::QuotaExceeded => {
            "The limits of this user are reached: raise them (ulimit), or run fewer processes"
        }
        _ => "Build it for this system, statically for another distribution of Linux",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_a_file_names_its_folder_and_the_remedy() {
        let folder = Path::new("/srv/programs");
        let of = |kind: io::ErrorKind| io::Error::from(kind);
        let full = Problem::Fetch(FetchError::Sink(of(io::ErrorKind::StorageFull))).remedy(folder);
        assert!(full.contains("/srv/programs is full") && full.contains("--cache-gib"), "{full}");
        let denied = Problem::File(of(io::ErrorKind::PermissionDenied)).remedy(folder);
        assert!(denied.contains("/srv/programs") && denied.contains("--cache"), "{denied}");
        assert!(Problem::Fetch(FetchError::Unknown).remedy(folder).contains("--bring"));
        assert!(not_started(&of(io::ErrorKind::PermissionDenied)).contains("noexec"));
        assert!(not_started(&of(io::ErrorKind::NotFound)).contains("loader"));
        assert!(not_started(&io::Error::from_raw_os_error(8)).contains("Build it"), "ENOEXEC");
    }
}
