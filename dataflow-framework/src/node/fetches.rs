//! The versions that are being fetched by this node, and the calls that wait for them.
//!
//! A version is fetched in pieces, several of which are requested at a time. Messages may be lost: a piece that does
//! not arrive in time is requested again, and after several repetitions from the next node that has the version. A
//! large version is written to a file as it arrives. Its hash identifies it on every node, so the next node continues
//! where the previous one stopped.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use taskwork::NodeId;

use serde::{Deserialize, Serialize};

use super::pieces::Pieces;
use crate::{
    core::{Assignment, Mark},
    failure::Failed,
    ids::{CallId, VersionId},
    spilled::Digest,
    value::Value,
};

/// The size of a piece, in bytes; the last one of a version may be smaller.
pub(super) const PIECE_BYTES: u64 = PIECE_BYTES_MAX as u64;
pub(super) const PIECE_BYTES_MAX: usize = 256 << 10;

/// The maximum number of outstanding pieces of a version.
const PIECES_UNDER_WAY_MAX: usize = 8;

/// The maximum number of versions that are fetched at a time.
const FETCHES_MAX: usize = 8;

/// The maximum size of a version that is fetched, in bytes.
const VERSION_BYTES_MAX: u64 = 1 << 40;

/// The time after which pieces are requested again, in milliseconds.
const REPEAT_MS: u64 = 500;

/// The number of times that pieces are requested again before the next node is asked.
const REPEATS_MAX: u32 = 6;

/// A version that is not here, and the nodes that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    pub(crate) from: Vec<NodeId>,
    /// Its encoded value, if the sender has it and it is [small](super::small).
    pub(crate) content: Option<Vec<u8>>,
}

/// A request for a piece of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) version: VersionId,
    /// The number of the piece, from 0.
    pub(crate) piece: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) ask: Ask,
    /// The size of the whole version, in bytes.
    pub(crate) total: u64,
    /// The hash of the whole, if that is large.
    pub(crate) digest: Option<Digest>,
    pub(crate) bytes: Vec<u8>,
}

impl Piece {
    /// Returns the requested piece, which is empty beyond the end.
    pub(crate) fn of(ask: Ask, value: &Value, digest: Option<Digest>) -> Result<Self, Failed> {
        let (total, bytes) = value.part(ask.piece.saturating_mul(PIECE_BYTES), PIECE_BYTES_MAX)?;
        Ok(Self { ask, total, digest, bytes })
    }
}

pub(crate) struct Arrived {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    pub(crate) value: Value,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
    pub(crate) awaited: Awaited,
}

/// The purposes for which a version was fetched.
#[derive(Default)]
pub(crate) struct Awaited {
    /// Whether a waiting call changes it in place.
    pub(crate) is_taken: bool,
    /// Whether it was also requested without a call (`add_alone`).
    pub(crate) is_alone: bool,
    /// The calls that miss no other input.
    pub(crate) ready: Vec<Assignment>,
}

/// A version that could not be fetched.
pub(crate) struct GivenUp {
    pub(crate) version: VersionId,
    /// The calls that waited for it.
    pub(crate) calls: Vec<Assignment>,
    /// The nodes that have it, whether they were asked or not.
    pub(crate) tried: Vec<NodeId>,
    /// The local error that prevents its reception, if any.
    pub(crate) reason: Option<String>,
}

/// The versions that are being fetched by this node, and the calls that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    under_way: BTreeMap<VersionId, Fetch>,
    /// The calls that wait, and the number of versions that each one is missing.
    calls: BTreeMap<CallId, (Assignment, usize)>,
}

#[derive(Debug)]
struct Fetch {
    mark: Mark,
    /// The nodes that have it, the next one first.
    from: VecDeque<NodeId>,
    /// The nodes that did not send it.
    tried: Vec<NodeId>,
    pieces: Option<Pieces>,
    /// The size and the hash of the whole version, from the first piece.
    whole: Option<(u64, Option<Digest>)>,
    /// Whether the current node has confirmed them.
    is_confirmed: bool,
    /// The local error that prevents its reception, if any.
    failed: Option<String>,
    /// The numbers of the outstanding pieces.
    asked: Vec<u64>,
    /// The next piece to request.
    next: u64,
    /// The time of the last request or arrival.
    moved_ms: u64,
    repeats: u32,
    calls: Vec<CallId>,
    /// Whether it was also requested without a call (`add_alone`).
    is_alone: bool,
}

impl Fetches {
    /// Adds a call that waits for versions.
    pub(crate) fn add(&mut self, assignment: Assignment, missing: Vec<Missing>) {
        let call = assignment.call;
        self.calls.insert(call, (assignment, missing.len()));
        for missing in missing {
            self.fetch(missing).calls.push(call);
        }
    }

    /// Adds a version for which no call waits.
    pub(crate) fn add_alone(&mut self, missing: Missing) {
        self.fetch(missing).is_alone = true;
    }

    fn fetch(&mut self, missing: Missing) -> &mut Fetch {
        let Missing { version, mark, from, .. } = missing;
        let fetch = self.under_way.entry(version).or_insert_with(|| Fetch {
            mark,
            from: VecDeque::new(),
            tried: Vec::new(),
            pieces: None,
            whole: None,
            is_confirmed: false,
            failed: None,
            asked: Vec::new(),
            next: 0,
            moved_ms: 0,
            repeats: 0,
            calls: Vec::new(),
            is_alone: false,
        });
        for peer in from {
            if !fetch.from.contains(&peer) {
                fetch.from.push_back(peer);
            }
        }
        fetch
    }

    /// Removes the waiting calls and returns them. Their versions still arrive.
    pub(crate) fn take_back(&mut self) -> Vec<Assignment> {
        for fetch in self.under_way.values_mut() {
            fetch.calls.clear();
        }
        std::mem::take(&mut self.calls).into_values().map(|(assignment, _)| assignment).collect()
    }

    /// Returns the requests to send now; and the versions that could not be fetched, with the calls that waited
    /// for them.
    pub(crate) fn asks(&mut self, now_ms: u64) -> (Vec<(NodeId, Ask)>, Vec<GivenUp>) {
        let (mut asks, mut given_up) = (Vec::new(), Vec::new());
        for (version, fetch) in self.under_way.iter_mut().take(FETCHES_MAX) {
            if !fetch.asked.is_empty() && now_ms >= fetch.moved_ms + REPEAT_MS {
                fetch.repeat();
            }
            let Some(peer) = fetch.from.front().copied().filter(|_| fetch.failed.is_none()) else {
                given_up.push(*version);
                continue;
            };
            for piece in fetch.pieces_to_ask() {
                fetch.moved_ms = now_ms;
                asks.push((peer, Ask { version: *version, piece }));
            }
        }
        let given_up = given_up.into_iter().map(|version| self.give_up(version)).collect();
        (asks, given_up)
    }

    /// Cancels the fetch of a version and returns the calls that need it.
    fn give_up(&mut self, version: VersionId) -> GivenUp {
        let fetch = self.under_way.remove(&version);
        let of = |fetch: Fetch| {
            // A version that cannot be received here may be recomputed elsewhere.
            let tried = fetch.tried.into_iter().chain(fetch.from).collect();
            (fetch.calls, tried, fetch.failed)
        };
        let (calls, tried, reason) = fetch.map(of).unwrap_or_default();
        let mut given_up = Vec::new();
        for call in &calls {
            given_up.extend(self.calls.remove(call).map(|(assignment, _)| assignment));
            for fetch in self.under_way.values_mut() {
                fetch.calls.retain(|other| other != call);
            }
        }
        GivenUp { version, calls: given_up, tried, reason }
    }

    /// Receives a piece. Returns the version if it is complete.
    pub(crate) fn on_piece(&mut self, piece: Piece, now_ms: u64) -> Option<Arrived> {
        let Piece { ask: Ask { version, piece: number }, total, digest, bytes } = piece;
        let fetch = self.under_way.get_mut(&version)?;
        let position = fetch.asked.iter().position(|asked| *asked == number)?;
        let is_size = bytes.len() as u64 == size_of_piece(number, total);
        if !is_size || total > VERSION_BYTES_MAX || !fetch.confirm(total, digest) {
            // The sender has a different version.
            fetch.turn_away();
            return None;
        }
        fetch.asked.swap_remove(position);
        (fetch.moved_ms, fetch.repeats) = (now_ms, 0);
        if let Err(error) = fetch.put(number, bytes) {
            fetch.failed = Some(error.to_string());
            return None;
        }
        let pieces = fetch.pieces.as_ref().map_or(0, Pieces::count);
        if pieces < pieces_of(total) {
            return None;
        }
        let mut fetch = self.under_way.remove(&version)?;
        let value = fetch.pieces.take()?.whole(total, digest);
        let mark = fetch.mark;
        Some(Arrived { version, mark, value, bytes: total, awaited: self.end_fetch(version, fetch) })
    }

    /// Records that a version came with an assignment, and returns the calls that waited for it. The nodes that were
    /// asked for it may be lost by now, and the fetch would fail. Returns `None` if it was not being fetched.
    pub(crate) fn on_arrived(&mut self, version: VersionId) -> Option<Awaited> {
        let fetch = self.under_way.remove(&version)?;
        Some(self.end_fetch(version, fetch))
    }

    fn end_fetch(&mut self, version: VersionId, fetch: Fetch) -> Awaited {
        let Fetch { calls, is_alone, .. } = fetch;
        let (mut is_taken, mut ready) = (false, Vec::new());
        for call in calls {
            let Some((assignment, missing)) = self.calls.get_mut(&call) else { continue };
            is_taken |= assignment.takes(version);
            *missing -= 1;
            if *missing == 0 {
                ready.extend(self.calls.remove(&call).map(|(assignment, _)| assignment));
            }
        }
        Awaited { is_taken, is_alone, ready }
    }

    /// Handles a reply that the node does not have the version.
    pub(crate) fn on_absent(&mut self, from: NodeId, version: VersionId) {
        if let Some(fetch) = self.under_way.get_mut(&version)
            && fetch.from.front() == Some(&from)
        {
            fetch.turn_away();
        }
    }

    /// Handles a reply that the node has the version, but is still preparing it.
    pub(crate) fn on_preparing(&mut self, from: NodeId, version: VersionId, now_ms: u64) {
        if let Some(fetch) = self.under_way.get_mut(&version)
            && fetch.from.front() == Some(&from)
        {
            // It is asked again after the usual time.
            (fetch.moved_ms, fetch.repeats) = (now_ms, 0);
        }
    }

    pub(crate) fn on_lost(&mut self, peer: NodeId) {
        for fetch in self.under_way.values_mut() {
            if fetch.from.front() == Some(&peer) {
                fetch.turn_away();
            }
            fetch.from.retain(|other| *other != peer);
        }
    }
}

impl Fetch {
    /// Requests all outstanding pieces again.
    fn repeat(&mut self) {
        self.repeats += 1;
        if self.repeats > REPEATS_MAX {
            self.turn_away();
        }
        self.next = 0;
        self.asked.clear();
    }

    /// Switches to the next node. The pieces are kept if that node confirms the size and the hash.
    fn turn_away(&mut self) {
        self.tried.extend(self.from.pop_front());
        self.repeats = 0;
        self.next = 0;
        self.asked.clear();
        self.is_confirmed = false;
    }

    /// Handles the size and hash sent by a node. Returns whether they match the node's earlier ones.
    fn confirm(&mut self, total: u64, digest: Option<Digest>) -> bool {
        let is_same = self.whole == Some((total, digest));
        if self.is_confirmed {
            return is_same;
        }
        if !is_same || digest.is_none() {
            // Without a hash, pieces of two nodes may be of different values.
            self.pieces = None;
            self.next = 0;
            self.whole = Some((total, digest));
        }
        self.is_confirmed = true;
        true
    }

    fn put(&mut self, number: u64, bytes: Vec<u8>) -> io::Result<()> {
        if self.pieces.is_none() {
            let is_large = matches!(self.whole, Some((_, Some(_))));
            self.pieces = Some(Pieces::new(is_large)?);
        }
        self.pieces.as_mut().map_or(Ok(()), |pieces| pieces.put(number, bytes))
    }

    fn pieces_to_ask(&mut self) -> Vec<u64> {
        // The first reply of a node contains the size and the hash, which show whether the pieces of the previous
        // node can be kept.
        let end = self.whole.map_or(1, |(total, _)| pieces_of(total));
        let most = if self.is_confirmed { PIECES_UNDER_WAY_MAX } else { 1 };
        let mut pieces = Vec::new();
        while self.next < end && self.asked.len() < most {
            if !self.pieces.as_ref().is_some_and(|pieces| pieces.has(self.next)) {
                self.asked.push(self.next);
                pieces.push(self.next);
            }
            self.next += 1;
        }
        pieces
    }
}

/// Returns the number of pieces of a version; an empty one has one.
pub(super) fn pieces_of(total: u64) -> u64 {
    total.div_ceil(PIECE_BYTES).max(1)
}

pub(super) fn size_of_piece(number: u64, total: u64) -> u64 {
    total.saturating_sub(number.saturating_mul(PIECE_BYTES)).min(PIECE_BYTES)
}
