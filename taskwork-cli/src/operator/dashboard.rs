//! `taskwork dashboard`: observes a cluster, and serves what it sees.

use std::{
    convert::Infallible,
    fs::{self, File},
    io::BufWriter,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use taskwork::view::{Content, Event, Recorder, View};

use super::Desk;
use crate::{
    Failure,
    web::{self, Pages},
};

/// The maximum size of a record, in bytes.
const RECORD_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The address to serve on: /metrics, /livez and /readyz. Only this machine may reach it.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8787")]
    listen: SocketAddr,
    /// A folder for a record of what is seen: one file for each start, up to 1 GiB.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

/// What is seen of the cluster.
#[derive(Default)]
struct Seen {
    view: Mutex<View>,
    /// Whether everything was read once.
    is_whole: AtomicBool,
}

impl Seen {
    fn ready(&self) -> Result<(), String> {
        if !self.is_whole.load(Relaxed) {
            return Err("the cluster is still being read".to_owned());
        }
        let silent = self.view.lock().unwrap_or_else(PoisonError::into_inner).silent_since_ms();
        match silent {
            None => Ok(()),
            Some(since) => Err(format!("ZooKeeper has not answered since {}", super::table::time(since))),
        }
    }
}

/// Observes until something is refused.
pub(super) async fn run(desk: &Desk, arguments: &Arguments) -> Result<Infallible, Failure> {
    let observer = desk.client.observer();
    // It has a session of its own.
    desk.client.close().await;
    let listener = web::listen("--listen", arguments.listen).await?;
    let mut recorder = arguments.record.as_deref().map(record).transpose()?;
    let seen = Arc::new(Seen::default());
    let at = listener.local_addr().map_or(arguments.listen, |at| at);
    crate::failure::print(&format!("serving http://{at}/metrics\n"));
    let (its, ready) = (Arc::clone(&seen), Arc::clone(&seen));
    let snapshot = move || its.view.lock().unwrap_or_else(PoisonError::into_inner).snapshot();
    let serving = web::serve(listener, Pages::of_cluster(snapshot, move || ready.ready()));
    let mut tell = |event: Event| {
        if event.content == Content::Found {
            seen.is_whole.store(true, Relaxed);
        }
        seen.view.lock().unwrap_or_else(PoisonError::into_inner).apply(&event);
        if let Some(to) = &mut recorder
            && let Err(error) = to.note(&event)
        {
            tracing::warn!(%error, "the record cannot be written any more; it ends here");
            recorder = None;
        }
    };
    tokio::select! {
        never = serving => match never {},
        refused = observer.follow(&mut tell) => Err(refused.into()),
    }
}

/// Opens a new record in a folder.
fn record(folder: &Path) -> Result<Recorder<BufWriter<File>>, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let file = folder.join(format!("cluster-{now}.jsonl"));
    let refused = |error| Failure::failed(format!("{} cannot be written: {error}", file.display()));
    fs::create_dir_all(folder).map_err(refused)?;
    Ok(Recorder::new(BufWriter::new(File::create_new(&file).map_err(refused)?), RECORD_BYTES_MAX))
}
