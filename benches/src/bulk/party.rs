//! A process that owns or fetches an object: it executes the orders on the lines of its input, one at a time,
//! and answers each with a line.

use std::{
    io::{self, BufRead as _, Write as _},
    thread,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use taskwork::benching::{Card, Exchange};
use tokio::sync::mpsc;

use super::{
    MIB, current_thread,
    plain::{self, Source},
};

/// An order to a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Order {
    /// Listen under this number.
    Open { number: u64 },
    /// Own an object of this many MiB.
    Own { mib: usize },
    /// Know other nodes.
    Meet { cards: Vec<Card> },
    /// Fetch an object, and optionally offer it while it is being received.
    Fetch { object: String, from: u64, hands_on: bool },
    /// Receive this many MiB by a plain stream of quinn.
    Plain { source: Source, mib: usize },
    /// Report the number of bytes of objects sent since the last report.
    Sent,
}

/// The answer to an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Reply {
    Done,
    Opened { card: Card },
    Owned { object: String, plain: Source },
    Sent { bytes: u64 },
}

/// The size of a piece of the object in memory, in MiB: all pieces share it.
const PIECE_MIB: usize = 16;

pub(super) fn pieces(mib: usize) -> Vec<Bytes> {
    let piece: Vec<u8> = (0..PIECE_MIB * MIB / 8).flat_map(usize::to_le_bytes).collect();
    vec![Bytes::from(piece); mib / PIECE_MIB]
}

/// Executes the orders on standard input until its end.
///
/// # Errors
/// If an order cannot be executed.
pub fn run() -> Result<()> {
    let (lines_in, mut lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = lines_in.send(line);
        }
    });
    current_thread()?.block_on(async {
        let mut party = Party::default();
        while let Some(line) = lines.recv().await {
            let reply = party.follow(serde_json::from_str(&line)?).await?;
            println!("{}", serde_json::to_string(&reply)?);
            io::stdout().flush()?;
        }
        Ok(())
    })
}

/// The state of a process.
#[derive(Default)]
struct Party {
    node: Option<Exchange>,
    /// The objects that it owns, and those that it forwards.
    offered: Vec<taskwork::benching::Offered>,
    told_bytes: u64,
}

impl Party {
    async fn follow(&mut self, order: Order) -> Result<Reply> {
        if let Order::Open { number } = order {
            let node = Exchange::open(number).map_err(|error| anyhow!(error))?;
            let card = node.card();
            self.node = Some(node);
            return Ok(Reply::Opened { card });
        }
        let node = self.node.as_ref().context("it is not open")?;
        match order {
            Order::Open { .. } => {}
            Order::Own { mib } => {
                let offered = node.offer(pieces(mib));
                let object = offered.name().to_owned();
                self.offered.push(offered);
                return Ok(Reply::Owned { object, plain: plain::serve(pieces(mib))? });
            }
            Order::Meet { cards } => {
                for card in cards {
                    node.meet(card).map_err(|error| anyhow!(error))?;
                }
            }
            Order::Fetch { object, from, hands_on } => {
                self.offered.clear();
                if hands_on {
                    let fetched = node.hand_on(&object, &[from]).await;
                    self.offered.push(fetched.map_err(|error| anyhow!(error))?);
                } else {
                    node.fetch(&object, &[from]).await.map_err(|error| anyhow!(error))?;
                }
            }
            Order::Plain { source, mib } => {
                let (connection, _endpoint) = plain::connect(&source).await?;
                let bytes = plain::receive(&connection).await?;
                ensure!(bytes == (mib * MIB) as u64, "{bytes} bytes came");
            }
            Order::Sent => {
                let bytes = node.sent_bytes() - self.told_bytes;
                self.told_bytes += bytes;
                return Ok(Reply::Sent { bytes });
            }
        }
        Ok(Reply::Done)
    }
}
