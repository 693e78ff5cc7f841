//! `taskwork dashboard`: observes a cluster, or reads a record of one, and serves what it sees.

use std::{
    convert::Infallible,
    fs::{self, File},
    io::{BufReader, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use taskwork::view::{Event, Recorder, replay};

use super::Desk;
use crate::{
    Failure,
    failure::print,
    web::{Board, Offer, Site},
};

/// The maximum size of a record, in bytes.
const RECORD_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    offer: Offer,
    /// A folder for a record of what is seen: one file for each start, up to 1 GiB.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Show a cluster as a record has left it, instead of one that is there.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    replay: Option<PathBuf>,
}

impl Arguments {
    /// Returns whether no cluster is needed.
    pub(super) fn replays(&self) -> bool {
        self.replay.is_some()
    }

    /// Serves a record for ever.
    pub(super) async fn replay(&self) -> Result<Infallible, Failure> {
        let file = self.replay.as_deref().unwrap_or(Path::new(""));
        let refused = |why: String| Failure::usage(format!("--replay {}: {why}", file.display()));
        let from = File::open(file).map_err(|error| refused(error.to_string()))?;
        let view = replay(BufReader::new(from)).map_err(|error| refused(error.to_string()))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let site = open(&self.offer)?;
        match site.serve(Arc::new(Board::replayed(name, view))).await {}
    }
}

fn open(offer: &Offer) -> Result<Site, Failure> {
    let site = offer.open()?;
    print(&format!("serving {}\n", site.url()));
    Ok(site)
}

/// Observes until something is refused.
pub(super) async fn run(desk: &Desk, arguments: &Arguments, cluster: &str) -> Result<Infallible, Failure> {
    let observer = desk.client.observer();
    // It has a session of its own.
    desk.client.close().await;
    let site = open(&arguments.offer)?;
    let mut recorder = arguments.record.as_deref().map(record).transpose()?;
    let board = Arc::new(Board::live(format!("/taskwork/{cluster}")));
    let serving = site.serve(Arc::clone(&board));
    let mut tell = |event: Event| {
        board.apply(&event);
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
