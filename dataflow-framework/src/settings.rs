//! The settings of the nodes of a process.

use std::{io, path::PathBuf};

use crate::{
    cache::{Cache, set_cache},
    file::set_work_dir,
    node::set_store,
    program::set_publish_dir,
};

/// The settings of the nodes of this process: [`Workflow::settings`](crate::Workflow::settings), or
/// [`apply`](Self::apply) before a [job](crate::Main::job) runs. The options `--store`, `--work-dir`, `--publish-to` and `--cache` of
/// the command line set the same.
///
/// The nodes of a process share its memory, its disk and its permissions, so settings apply to all of them, and the last
/// ones count.
///
/// # Examples
/// ```
/// use dataflow_framework::{File, Settings, Workflow, tasks};
///
/// let folder = std::env::temp_dir().join(format!("settings-{}", std::process::id()));
/// let settings = Settings::default().work_dir(&folder);
/// Workflow::new(tasks![])?.settings(settings).run(|| {
///     let file = File::new("name", "content")?;
///     assert!(file.path().starts_with(&folder));
///     Ok::<_, std::io::Error>(())
/// })?;
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "settings have an effect only after `apply`"]
pub struct Settings {
    pub(crate) store_bytes: Option<u64>,
    pub(crate) work_dir: Option<PathBuf>,
    pub(crate) publish_dir: Option<PathBuf>,
    pub(crate) cache: Option<String>,
    pub(crate) has_strict_cache: bool,
}

impl Settings {
    /// Sets the memory limit for the data of a job on each node of this process, in bytes. Nodes that have already joined
    /// a job keep their limit.
    ///
    /// Data is counted by its encoded size, so its values may take more memory, such as small numbers that are stored as
    /// large ones. Memory that tasks and the program allocate for themselves is not counted, and neither is the output of
    /// a running call. Beyond the limit, copies that other nodes have are dropped, and other data is moved to files
    /// ([`work_dir`](Self::work_dir)) and read when it is needed. If the inputs of a call exceed the limits of all nodes,
    /// the call waits for a node with a larger limit; in a program that runs in one process, it fails.
    ///
    /// Without this setting the limit is the environment variable `DATAFLOW_STORE`, such as `4GiB`, or half of the memory
    /// of the machine or of its control group. The nodes of a process share that half.
    pub fn store(self, bytes: u64) -> Self {
        Self { store_bytes: Some(bytes), ..self }
    }

    /// Sets the directory in which this process keeps its [`File`](crate::File)s. Each one has a directory of its own,
    /// which is removed with it. Existing files stay where they are.
    ///
    /// The default is the environment variable `DATAFLOW_WORK_DIR`, or else the system's directory for temporary files.
    /// The directory is created if it does not exist. A process that is killed, or that exits while its tasks run, leaves
    /// its files behind; the next process that uses the same directory removes them. Creating a file takes about 10 µs in
    /// memory (`tmpfs`), and up to 1 ms on a disk.
    pub fn work_dir(self, directory: impl Into<PathBuf>) -> Self {
        Self { work_dir: Some(directory.into()), ..self }
    }

    /// Restricts the files that programs of this process publish to this folder and the folders below it. Symbolic links
    /// that lead out of it are refused. By default programs may write wherever the user of the process may.
    pub fn publish_dir(self, folder: impl Into<PathBuf>) -> Self {
        Self { publish_dir: Some(folder.into()), ..self }
    }

    /// Sets the cache of the nodes of this process: a folder, which is created when it is needed; or, with the feature
    /// `stores`, the URI of a folder in a bucket or on a web server, such as `s3://BUCKET/cache`. Outputs of
    /// [cached](crate::Options::cached) calls are kept there, and found by later programs. Nodes may have different caches,
    /// or none.
    ///
    /// Users and builds may share a cache, if they trust each other's results. Entries are independent files that may be
    /// removed at any time; a damaged one is not used. If the cache cannot be read or written, calls run without it, after
    /// one warning.
    ///
    /// The default is the environment variable `DATAFLOW_CACHE`, or else no cache.
    pub fn cache(self, place: impl Into<String>) -> Self {
        Self { cache: Some(place.into()), ..self }
    }

    /// Uses only entries of the [cache](Self::cache) that this build of the program has written. Then each change of the
    /// program repeats all calls, also one of a function that a task calls.
    pub fn strict_cache(self) -> Self {
        Self { has_strict_cache: true, ..self }
    }

    /// Applies the settings to this process.
    ///
    /// # Errors
    /// Fails if the store has no bytes, the folder for published files does not exist, or the place of the cache is invalid;
    /// then no setting is applied.
    pub fn apply(self) -> io::Result<()> {
        if self.store_bytes == Some(0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a store of 0 bytes holds nothing"));
        }
        let cache = self.cache.map(|place| Cache::open(&place, self.has_strict_cache)).transpose()?;
        if let Some(folder) = self.publish_dir {
            set_publish_dir(&folder)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
        }
        if let Some(cache) = cache {
            set_cache(cache);
        }
        self.store_bytes.inspect(|bytes| set_store(*bytes));
        if let Some(directory) = self.work_dir {
            set_work_dir(directory);
        }
        Ok(())
    }
}
