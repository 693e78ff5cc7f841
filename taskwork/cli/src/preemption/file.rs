//! A notice file, for other sources: its existence is the notice.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    task,
    time::{self, Instant},
};

use super::{Notice, answer, policy::Clock};

/// The polling interval of the file.
pub(super) const EVERY: Duration = Duration::from_millis(500);

/// The maximum number of bytes read from it.
const READ_MAX: u64 = 256;

/// Waits for the file.
pub(super) async fn watch(path: PathBuf, every: Duration) -> Notice {
    watch_by(read, path, every).await
}

/// Waits for the file. `read` is called on a separate thread, once at a time: a file system that hangs must not block
/// the node's session.
pub(super) async fn watch_by(
    read: impl Fn(&Path) -> io::Result<Option<String>> + Clone + Send + 'static,
    path: PathBuf,
    every: Duration,
) -> Notice {
    let (mut told, mut was_empty) = (false, false);
    loop {
        let (read, its) = (read.clone(), path.clone());
        let found = task::spawn_blocking(move || read(&its)).await.unwrap_or_else(|error| Err(error.into()));
        match found {
            // The writer may have created it just now.
            Ok(Some(content)) if content.trim().is_empty() && !was_empty => was_empty = true,
            Ok(Some(content)) => {
                let left = Clock::ours().left(answer::file(&content));
                let why = format!("{} is there", path.display());
                return Notice { why, gone_at: Instant::now() + left };
            }
            Ok(None) => was_empty = false,
            Err(error) if !std::mem::replace(&mut told, true) => {
                tracing::warn!(%error, path = %path.display(), "the file of notices cannot be read; it is tried again");
            }
            Err(_) => {}
        }
        time::sleep(every).await;
    }
}

/// Reads the start of the file, if it exists. Of a file that is not regular, only the existence counts: reading it
/// could block forever.
fn read(path: &Path) -> io::Result<Option<String>> {
    let opened = std::fs::metadata(path)
        .and_then(|meta| meta.is_file().then(|| std::fs::File::open(path)).transpose());
    let file = match opened {
        Ok(None) => return Ok(Some(String::new())),
        Ok(Some(file)) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(READ_MAX).read_to_end(&mut content)?;
    Ok(Some(String::from_utf8_lossy(&content).into_owned()))
}
