//! `taskwork dashboard`: observes a cluster, or reads a record of one, and serves what it sees.

use std::{
    convert::Infallible,
    fs::{self, File, OpenOptions},
    io::{BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt as _,
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
    /// A folder for a record of what is seen: one file for each start. It ends at 1 GiB, with a warning.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Show a cluster as a record has left it, instead of one that is there; no servers are needed.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    replay: Option<PathBuf>,
}

/// A record that was read, and where it will be shown.
pub(super) struct Replayed {
    site: Site,
    board: Board,
}

impl Arguments {
    /// Returns whether no cluster is needed.
    pub(super) fn replays(&self) -> bool {
        self.replay.is_some()
    }

    /// Begins to listen, then reads the record, which may take long. To be called in the context of a runtime.
    pub(super) fn replayed(&self) -> Result<Replayed, Failure> {
        let file = self.replay.as_deref().unwrap_or(Path::new(""));
        let refused = |why: String| Failure::usage(format!("--replay {}: {why}", file.display()));
        let site = self.offer.open()?;
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
        Ok(Replayed { site, board: Board::replayed(name, view) })
    }
}

impl Replayed {
    /// Serves it for ever.
    pub(super) async fn serve(self) -> Result<Infallible, Failure> {
        announce(&self.site);
        match self.site.serve(Arc::new(self.board)).await {}
    }
}

fn announce(site: &Site) {
    print(&format!("serving {}\n", site.url()));
}

/// Observes until something is refused.
pub(super) async fn run(desk: &Desk, arguments: &Arguments, cluster: &str) -> Result<Infallible, Failure> {
    let observer = desk.client.observer();
    // It has a session of its own.
    desk.client.close().await;
    let site = arguments.offer.open()?;
    announce(&site);
    let mut record = arguments.record.as_deref().map(begin_record).transpose()?;
    let board = Arc::new(Board::live(format!("/taskwork/{cluster}")));
    let serving = site.serve(Arc::clone(&board));
    let mut tell = |event: Event| {
        board.apply(&event);
        if let Some(why) = record.as_mut().and_then(|record| record.note(&event)) {
            tracing::warn!("{why}");
        }
    };
    tokio::select! {
        never = serving => match never {},
        refused = observer.follow(&mut tell) => Err(refused.into()),
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

    /// Writes an event. If the record ends by that, it is returned why.
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
            Ok(()) => format!("the record {file} is full and ends here; the next start begins another one"),
            Err(error) => format!("the record {file} cannot be written any more and ends here: {error}"),
        })
    }
}

/// Begins a new record in a folder. Only its owner may read it.
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

    /// Reads a record that is to be shown at an address.
    fn replayed(file: &Path, listen: &str) -> Result<Replayed, String> {
        let runtime = crate::target::runtime().unwrap();
        let _here = runtime.enter();
        let line = ["test", "--listen", listen, "--replay", file.to_str().unwrap()];
        let arguments = Line::try_parse_from(line).unwrap().arguments;
        arguments.replayed().map_err(|refused| refused.to_string())
    }

    #[test]
    fn what_is_no_record_is_refused_and_where_it_would_be_shown_is_checked_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("record.jsonl");
        let refused = |listen| replayed(&file, listen).map(drop).unwrap_err();
        let here = "127.0.0.1:0";
        let missing = refused(here);
        assert!(missing.contains("record.jsonl") && !missing.contains("tick"), "{missing}");
        assert!(refused("0.0.0.0:0").contains("--token-file"), "the file is not looked at before");
        for content in ["", "anything", "{\"at_ms\":1"] {
            fs::write(&file, content).unwrap();
            let refused = refused(here);
            assert!(refused.contains("holds no tick") && refused.contains("--record"), "{refused}");
        }
        fs::write(&file, "no event\n").unwrap();
        assert!(refused(here).contains("line 1"));
        let mut record = Record::new(File::create(&file).unwrap(), file.clone(), u64::MAX);
        assert_eq!(record.note(&Event::tick(7)), None);
        let shown = replayed(&file, here).unwrap();
        assert_eq!(shown.board.snapshot().cluster.at_ms, 7);
        assert!(shown.site.url().starts_with("http://127.0.0.1:"));
    }

    #[test]
    fn a_record_that_is_full_ends_and_says_so_once() {
        let mut record = Record::new(Vec::new(), PathBuf::from("cluster-1.jsonl"), 200);
        let said: Vec<String> = (0..100).filter_map(|at_ms| record.note(&Event::tick(at_ms))).collect();
        assert!(said.len() == 1 && said[0].contains("cluster-1.jsonl is full"), "{said:?}");
        assert!(record.to.is_none());
    }

    #[test]
    fn a_record_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let record = begin_record(folder.path()).unwrap();
        assert_eq!(fs::metadata(&record.file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
