//! `taskwork dashboard`: observes a cluster, or reads a record of one, and serves its state. If there is no cluster
//! yet, it prints a note and waits for one.

use std::{
    convert::Infallible,
    fs::{self, File, OpenOptions},
    io::{BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use taskwork::{
    Client,
    client::ClientError,
    view::{Event, Recorder, replay},
};
use taskwork_cli::{
    Failure,
    command::{print, tell},
};

use crate::web::{Board, Offer, Site, controller};

/// The maximum size of a record, in bytes.
const RECORD_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    offer: Offer,
    /// The folder for records of the observed cluster: one file for each start, at most 1 GiB; a warning is logged when
    /// it is full.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Show the cluster at the end of a record instead of a live one; no servers are needed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "allow_actions"])]
    replay: Option<PathBuf>,
}

impl Arguments {
    /// Starts to listen. Call it in the context of a runtime.
    pub(super) fn open(&self) -> Result<Site, Failure> {
        self.offer.open()
    }

    /// Reads the record to show, which may take long; `None` to show a cluster.
    pub(super) fn replayed(&self) -> Result<Option<Board>, Failure> {
        let Some(file) = self.replay.as_deref() else { return Ok(None) };
        let refused = |why: String| Failure::usage(format!("--replay {}: {why}", file.display()));
        let from = File::open(file).map_err(|error| refused(error.to_string()))?;
        let view = replay(BufReader::new(from)).map_err(|error| refused(error.to_string()))?;
        if view.seq() == 0 {
            return Err(Failure::usage(format!(
                "--replay {} holds no tick of a cluster: it is no record, or one that ended before the cluster was \
                 read. taskwork dashboard --record DIR writes records",
                file.display()
            )));
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Some(Board::replayed(name, view)))
    }
}

/// Serves a recorded cluster until the process is stopped.
pub(super) async fn show(site: Site, board: Board) -> Result<Infallible, Failure> {
    announce(&site);
    match site.serve(Arc::new(board)).await {}
}

fn announce(site: &Site) {
    print(&format!("serving {}\n", site.url()));
}

/// Serves a live cluster until a request is refused. `missing` is the reason why there is no cluster yet.
pub(super) async fn observe(
    client: Client,
    site: Site,
    arguments: &Arguments,
    cluster: &str,
    missing: Option<ClientError>,
) -> Result<Infallible, Failure> {
    announce(&site);
    let observer = client.observer();
    let mut record = arguments.record.as_deref().map(begin_record).transpose()?;
    let board = Arc::new(Board::live(format!("/taskwork/{cluster}")));
    if let Some(missing) = &missing {
        tell(format_args!("note: {missing}. This waits for it"));
        board.begin_to_wait(missing.to_string());
    }
    let mut waits = missing.is_some();
    let serving = site.serve(Arc::clone(&board));
    let mut take = |event: Event| {
        board.apply(&event);
        if waits && !board.waits() {
            waits = false;
            tell(format_args!("note: cluster {cluster:?} is there now"));
        }
        if let Some(why) = record.as_mut().and_then(|record| record.note(&event)) {
            tracing::warn!("{why}");
        }
    };
    tokio::select! {
        never = serving => match never {},
        never = controller::watch(client, &board) => match never {},
        refused = observer.follow(&mut take) => Err(refused.into()),
    }
}

/// A record that is written until it is full.
struct Record<W: Write> {
    to: Option<Recorder<W>>,
    file: PathBuf,
}

impl<W: Write> Record<W> {
    fn new(to: W, file: PathBuf, bytes_max: u64) -> Self {
        Self { to: Some(Recorder::new(to, bytes_max)), file }
    }

    /// Writes an event. Returns the reason if that closes the record.
    fn note(&mut self, event: &Event) -> Option<String> {
        let to = self.to.as_mut()?;
        let noted = to.note(event);
        if noted.is_ok() && to.surplus() == 0 {
            return None;
        }
        let ended = noted.and_then(|()| self.to.take().map_or(Ok(()), |to| to.finish().map(drop)));
        self.to = None;
        let file = self.file.display();
        Some(match ended {
            Ok(()) => format!("the record {file} is full; the next start creates another one"),
            Err(error) => format!("the record {file} ends here, because it cannot be written: {error}"),
        })
    }
}

/// Starts a new record in a folder, readable only by its owner.
fn begin_record(folder: &Path) -> Result<Record<BufWriter<File>>, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let file = folder.join(format!("cluster-{now}.jsonl"));
    let refused = |error| Failure::failed(format!("{} cannot be written: {error}", file.display()));
    fs::create_dir_all(folder).map_err(refused)?;
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).map_err(refused)?;
    Ok(Record::new(BufWriter::new(to), file, RECORD_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// Reads the record given with `--replay`.
    fn replayed(file: &Path) -> Result<Board, String> {
        let line = ["test", "--replay", file.to_str().unwrap()];
        let arguments = Line::try_parse_from(line).unwrap().arguments;
        arguments.replayed().map(Option::unwrap).map_err(|refused| refused.to_string())
    }

    #[test]
    fn replay_of_unusable_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("record.jsonl");
        let refused = || replayed(&file).map(drop).unwrap_err();
        let missing = refused();
        assert!(missing.contains("record.jsonl") && !missing.contains("tick"), "{missing}");
        for content in ["", "anything", "{\"at_ms\":1"] {
            fs::write(&file, content).unwrap();
            let refused = refused();
            assert!(refused.contains("holds no tick") && refused.contains("--record"), "{refused}");
        }
        fs::write(&file, "no event\n").unwrap();
        assert!(refused().contains("line 1"));
        let mut record = Record::new(File::create(&file).unwrap(), file.clone(), u64::MAX);
        assert_eq!(record.note(&Event::tick(7)), None);
        assert_eq!(replayed(&file).unwrap().snapshot().cluster.at_ms, 7);
    }

    #[test]
    fn full_record_is_closed_with_one_warning() {
        let mut record = Record::new(Vec::new(), PathBuf::from("cluster-1.jsonl"), 200);
        let said: Vec<String> = (0..100).filter_map(|at_ms| record.note(&Event::tick(at_ms))).collect();
        assert!(said.len() == 1 && said[0].contains("cluster-1.jsonl is full"), "{said:?}");
        assert!(record.to.is_none());
    }

    #[test]
    fn record_file_is_private_to_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let record = begin_record(folder.path()).unwrap();
        assert_eq!(fs::metadata(&record.file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
