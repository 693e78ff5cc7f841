//! The rate at which a byte object is fetched from a node, against a plain stream of quinn: each side in its own
//! thread, like two node processes.

mod plain;

use std::{
    sync::mpsc,
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use taskwork::benching::{Card, Exchange};
use tokio::runtime::{self, Runtime};

use self::plain::Source;
use crate::{
    measure::{self, Contender},
    row::{Row, Target},
};

const MIB: usize = 1 << 20;
/// The size of the object, in MiB.
const OBJECT_MIB: usize = 512;
/// The size of a piece of the object in memory, in MiB: all pieces share it.
const PIECE_MIB: usize = 16;

/// Runs the benchmark.
///
/// # Errors
/// If the transfer fails.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let owner = Owner::start()?;
    let runtime = current_thread()?;
    let fetcher = runtime.block_on(async { Exchange::open(2) }).map_err(|error| anyhow!(error))?;
    fetcher.meet(owner.card.clone()).map_err(|error| anyhow!(error))?;
    owner.meet(fetcher.card())?;
    let (connection, _endpoint) = runtime.block_on(plain::connect(&owner.plain))?;
    let bytes = (OBJECT_MIB * MIB) as u64;
    let fetch = || {
        let fetched = runtime.block_on(fetcher.fetch(&owner.object, &[1]));
        ensure!(fetched.map_err(|error| anyhow!(error))? == bytes, "not all bytes came");
        Ok(())
    };
    let plain = || {
        ensure!(runtime.block_on(plain::receive(&connection))? == bytes, "not all bytes came");
        Ok(())
    };
    let contenders = vec![Contender::new("fetch", fetch), Contender::new("plain", plain)];
    let times = measure::in_turn(rounds, contenders)?;
    let rate = |of| times.rate(of, OBJECT_MIB as f64);
    let compared = times.speedup("fetch", "plain");
    Ok(vec![
        Row::new("fetch of 512 MiB ÷ plain stream of quinn", "", Target::AtLeast(0.8), compared),
        Row::new("fetch of 512 MiB", "MiB/s", Target::Told, rate("fetch")),
        Row::new("plain stream of quinn", "MiB/s", Target::Told, rate("plain")),
    ])
}

fn current_thread() -> Result<Runtime> {
    Ok(runtime::Builder::new_current_thread().enable_all().build()?)
}

fn pieces() -> Vec<Bytes> {
    let piece: Vec<u8> = (0..PIECE_MIB * MIB / 8).flat_map(usize::to_le_bytes).collect();
    vec![Bytes::from(piece); OBJECT_MIB / PIECE_MIB]
}

/// A node that has the object, in a separate thread until this is dropped.
struct Owner {
    card: Card,
    object: String,
    plain: Source,
    /// The peers that it should know; the thread exits when this is dropped.
    meets: Option<tokio::sync::mpsc::UnboundedSender<Card>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Owner {
    fn start() -> Result<Self> {
        let (ready, is_ready) = mpsc::channel();
        let (meets, mut meeting) = tokio::sync::mpsc::unbounded_channel();
        let runtime = current_thread()?;
        let thread = thread::spawn(move || {
            runtime.block_on(async move {
                let node = Exchange::open(1).map_err(|error| anyhow!(error))?;
                let offered = node.offer(pieces());
                let plain = plain::serve(pieces())?;
                ready.send((node.card(), offered.name().to_owned(), plain))?;
                while let Some(card) = meeting.recv().await {
                    node.meet(card).map_err(|error| anyhow!(error))?;
                }
                Ok(())
            })
        });
        let (card, object, plain) = is_ready.recv().context("no node could be opened")?;
        Ok(Self { card, object, plain, meets: Some(meets), thread: Some(thread) })
    }

    fn meet(&self, card: Card) -> Result<()> {
        let meets = self.meets.as_ref().context("it has ended")?;
        meets.send(card).context("the owner's thread has ended")
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.meets.take();
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the owner of the object has failed: {error}");
        }
    }
}
