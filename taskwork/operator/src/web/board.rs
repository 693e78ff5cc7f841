//! The view of a cluster, and the streams of its changes to browsers.
//!
//! Each change is serialized once for all followers. A follower that does not read is dropped, and may reconnect.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use axum::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use taskwork::view::{Content, Delta, Event, Frozen, JobAbout, Snapshot, View};
use tokio::sync::mpsc;

use super::{controller::Controller, detail, server::Deadline, topics::Topics};

/// The maximum number of unread messages of a follower; about one is sent per second.
const WAITING_MAX: usize = 16;
/// The number of messages at the start of a stream.
const FIRST_MESSAGES: usize = 3;

/// The displayed view of a cluster.
pub(crate) struct Board {
    /// The name of the cluster, or of its record.
    name: String,
    source: Source,
    /// The offset of tick numbers, which distinguishes them from those of an earlier start.
    base: u64,
    /// Whether everything was read once.
    is_whole: AtomicBool,
    shown: Mutex<Shown>,
}

/// The complete view as sent to browsers.
#[derive(Serialize)]
struct Whole<'a> {
    seq: u64,
    version: &'static str,
    cluster: &'a str,
    now_ms: u64,
    stale_since_ms: Option<u64>,
    /// The reason for waiting, if there is no cluster yet.
    waits: Option<&'a str>,
    source: &'static str,
    snapshot: &'a Snapshot,
}

/// The origin of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// An observed cluster.
    Live,
    /// A record; the view does not change.
    Record,
}

#[derive(Default)]
struct Shown {
    view: View,
    seq: u64,
    silent_since_ms: Option<u64>,
    /// The reason for waiting, until there is a cluster.
    waits: Option<String>,
    /// The controller of machines, if it is known.
    controller: Option<Controller>,
    followers: Vec<Follower>,
    /// The serialized view, and its tick.
    text: Option<(u64, Bytes)>,
}

/// A receiver of changes.
struct Follower {
    topics: Topics,
    to: mpsc::Sender<Bytes>,
    deadline: Deadline,
}

impl Board {
    /// Creates the board of a cluster to observe.
    pub(crate) fn live(name: String) -> Self {
        Self::of(name, Source::Live, View::default())
    }

    /// Creates the board of a recorded cluster.
    pub(crate) fn replayed(name: String, view: View) -> Self {
        Self::of(name, Source::Record, view)
    }

    fn of(name: String, source: Source, view: View) -> Self {
        let seq = view.seq();
        let silent_since_ms = view.silent_since_ms();
        let shown = Shown { view, seq, silent_since_ms, ..Shown::default() };
        let is_whole = AtomicBool::new(source == Source::Record);
        Self { name, source, base: unix_ms(), is_whole, shown: Mutex::new(shown) }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the last report of the controller of machines; `None` if it is unknown, or there never was one.
    pub(super) fn set_controller(&self, controller: Option<Controller>) {
        self.shown().controller = controller;
    }

    pub(super) fn controller(&self) -> Option<Controller> {
        self.shown().controller.clone()
    }

    /// Applies an event, and notifies the followers.
    pub(crate) fn apply(&self, event: &Event) {
        if event.content == Content::Found {
            self.is_whole.store(true, Relaxed);
        }
        let mut shown = self.shown();
        shown.view.apply(event);
        if matches!(event.content, Content::Data(_) | Content::Children(_)) {
            shown.waits = None;
        }
        match event.content {
            Content::Tick => self.tell_changes(&mut shown),
            Content::Lost | Content::Found => self.tell_silence(&mut shown),
            _ => {}
        }
    }

    /// Records the reason for waiting, until the cluster is seen.
    pub(crate) fn begin_to_wait(&self, why: String) {
        let mut shown = self.shown();
        (shown.waits, shown.text) = (Some(why), None);
    }

    /// Returns whether there is no cluster yet.
    pub(crate) fn waits(&self) -> bool {
        self.shown().waits.is_some()
    }

    /// Returns whether the view is up to date, or the reason why not.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if !self.is_whole.load(Relaxed) {
            return Err("the cluster is still being read".to_owned());
        }
        match self.shown().view.silent_since_ms() {
            Some(since) if self.source == Source::Live => {
                Err(format!("ZooKeeper has not answered since {}", crate::table::time(since)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of followers.
    #[cfg(test)]
    pub(super) fn followers(&self) -> usize {
        self.shown().followers.len()
    }

    /// Returns whether a node is known to have been asked to leave.
    pub(super) fn is_draining(&self, node: &str) -> bool {
        self.shown().view.member(node).is_some_and(|member| member.draining)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.shown().view.snapshot()
    }

    /// Returns the complete view as JSON.
    pub(super) fn text(&self) -> Bytes {
        self.text_of(&mut self.shown())
    }

    fn text_of(&self, shown: &mut Shown) -> Bytes {
        let is_current = |(seq, _): &&(u64, Bytes)| *seq == shown.seq;
        let text = match shown.text.as_ref().filter(is_current) {
            Some((_, text)) => text.clone(),
            None => Bytes::from(self.whole(&shown.view, shown.waits.as_deref())),
        };
        shown.text = Some((shown.seq, text.clone()));
        text
    }

    fn whole(&self, view: &View, waits: Option<&str>) -> Vec<u8> {
        let mut snapshot = view.snapshot();
        snapshot.seq += self.base;
        for moment in &mut snapshot.moments {
            moment.seq += self.base;
        }
        let is_live = self.source == Source::Live;
        to_json(&Whole {
            seq: snapshot.seq,
            version: env!("CARGO_PKG_VERSION"),
            cluster: &self.name,
            now_ms: if is_live { unix_ms() } else { snapshot.cluster.at_ms },
            stale_since_ms: view.silent_since_ms(),
            waits,
            source: if is_live { "live" } else { "replay" },
            snapshot: &snapshot,
        })
    }

    /// Returns a job as a whole; `None` if the job does not exist.
    pub(super) fn about(&self, id: &str) -> Option<Frozen<JobAbout>> {
        self.shown().view.about(id)
    }

    /// Returns the details of a job as JSON; `None` if the job does not exist.
    pub(super) fn job(&self, id: &str) -> Option<Value> {
        self.job_of(&self.shown(), id)
    }

    /// Returns the details of a member as JSON: its workers over time.
    pub(super) fn node(&self, name: &str) -> Option<Value> {
        let shown = self.shown();
        let series = shown.view.workers_of(name)?;
        Some(json!({ "node": name, "series": series }))
    }

    fn job_of(&self, shown: &Shown, id: &str) -> Option<Value> {
        let job = shown.view.job(id)?;
        let moments = shown.view.moments().filter(|moment| detail::concerns(moment, id, &job));
        let mut moments: Vec<_> = moments.cloned().collect();
        for moment in &mut moments {
            moment.seq += self.base;
        }
        Some(detail::of(self.base + shown.seq, id, &job, &moments))
    }

    /// Adds a follower. It receives the changes after a tick that it knows, or the complete view first.
    pub(super) fn follow(
        &self,
        topics: Topics,
        since: Option<u64>,
        deadline: Deadline,
    ) -> mpsc::Receiver<Bytes> {
        let (to, from) = mpsc::channel(WAITING_MAX + FIRST_MESSAGES);
        let mut shown = self.shown();
        let known = since.and_then(|since| since.checked_sub(self.base));
        let delta = known.and_then(|since| shown.view.delta_since(since));
        let (mut first, mut whole, mut rest) = (b"retry: 2000\n\n".to_vec(), None, Vec::new());
        if topics.view {
            match &delta {
                Some(delta) if delta.seq == delta.since => {}
                Some(delta) => first.extend(self.change(delta)),
                None => {
                    // It may be large, so all followers share the text.
                    whole = Some(self.text_of(&mut shown));
                    first.extend(head("view", self.base + shown.seq));
                    rest.extend(EVENT_END);
                }
            }
        }
        for id in &topics.jobs {
            if delta.as_ref().is_none_or(|delta| concerns(delta, id))
                && let Some(job) = self.job_of(&shown, id)
            {
                rest.extend(event("job", self.base + shown.seq, job.to_string().as_bytes()));
            }
        }
        rest.extend(self.silence(&shown));
        let rest = (!rest.is_empty()).then(|| Bytes::from(rest));
        for message in [Some(Bytes::from(first)), whole, rest].into_iter().flatten() {
            // The channel is empty, and has capacity for all of them.
            let _ = to.try_send(message);
        }
        // Closed followers are also removed here, because a record sends no further messages.
        shown.followers.retain(|follower| !follower.to.is_closed());
        shown.followers.push(Follower { topics, to, deadline });
        from
    }

    fn tell_changes(&self, shown: &mut Shown) {
        let before = std::mem::replace(&mut shown.seq, shown.view.seq());
        shown.followers.retain(|follower| !follower.to.is_closed());
        if shown.followers.is_empty() {
            return;
        }
        let Some(delta) = shown.view.delta_since(before) else { return };
        let change = Bytes::from(self.change(&delta));
        // Each is serialized once for all followers.
        let wanted: BTreeSet<&str> =
            shown.followers.iter().flat_map(|follower| &follower.topics.jobs).map(String::as_str).collect();
        let wanted: BTreeMap<&str, Bytes> = wanted
            .into_iter()
            .filter(|id| concerns(&delta, id))
            .filter_map(|id| {
                let job = self.job_of(shown, id)?;
                Some((id, Bytes::from(event("job", self.base + delta.seq, job.to_string().as_bytes()))))
            })
            .collect();
        let told: Vec<Vec<Bytes>> = shown
            .followers
            .iter()
            .map(|Follower { topics, .. }| {
                let of_jobs = topics.jobs.iter().filter_map(|id| wanted.get(id.as_str()).cloned());
                topics.view.then(|| change.clone()).into_iter().chain(of_jobs).collect()
            })
            .collect();
        let mut told = told.into_iter();
        shown.followers.retain(|follower| told.next().is_none_or(|messages| follower.tell(messages)));
    }

    /// Notifies the followers if ZooKeeper has stopped answering, or answers again.
    fn tell_silence(&self, shown: &mut Shown) {
        let silent_since_ms = shown.view.silent_since_ms();
        if std::mem::replace(&mut shown.silent_since_ms, silent_since_ms) == silent_since_ms {
            return;
        }
        let message = match silent_since_ms {
            Some(_) => Bytes::from(self.silence(shown)),
            None => Bytes::from(event("fresh", self.base + shown.seq, b"{}")),
        };
        shown.followers.retain(|follower| follower.tell(vec![message.clone()]));
        shown.text = None;
    }

    /// Returns the event that ZooKeeper does not answer; empty if it does.
    fn silence(&self, shown: &Shown) -> Vec<u8> {
        let since = shown.view.silent_since_ms().map(|since| json!({ "stale_since_ms": since }).to_string());
        since.map(|since| event("stale", self.base + shown.seq, since.as_bytes())).unwrap_or_default()
    }

    fn change(&self, delta: &Delta) -> Vec<u8> {
        let mut delta = delta.clone();
        delta.since += self.base;
        delta.seq += self.base;
        for moment in &mut delta.moments {
            moment.seq += self.base;
        }
        event("view", delta.seq, &to_json(&delta))
    }
}

impl Follower {
    /// Sends messages. Returns whether the follower is still connected.
    fn tell(&self, messages: Vec<Bytes>) -> bool {
        for message in messages {
            match self.to.try_send(message) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    tracing::warn!(
                        waiting = WAITING_MAX,
                        "a browser was dropped: it follows events but does not read them"
                    );
                    self.deadline.end();
                    return false;
                }
            }
        }
        true
    }
}

/// Serializes a value as one line.
fn to_json(it: &impl Serialize) -> Vec<u8> {
    // Plain data always serializes.
    serde_json::to_vec(it).unwrap_or_default()
}

/// Returns whether a change concerns a job.
fn concerns(delta: &Delta, job: &str) -> bool {
    delta.jobs.contains_key(job)
}

/// The end of each event of a stream.
const EVENT_END: &[u8] = b"\n\n";

/// Returns an event of a stream. The content must be one line.
fn event(kind: &str, seq: u64, content: &[u8]) -> Vec<u8> {
    [&head(kind, seq), content, EVENT_END].concat()
}

/// Returns the start of an event, before its content.
fn head(kind: &str, seq: u64) -> Vec<u8> {
    format!("event: {kind}\nid: {seq}\ndata: ").into_bytes()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(board: &Board) -> mpsc::Receiver<Bytes> {
        let topics = Topics { view: true, jobs: Vec::new() };
        board.follow(topics, None, Deadline::new())
    }

    #[test]
    fn closed_followers_are_removed_without_changes() {
        let board = Board::replayed("record.jsonl".to_owned(), View::default());
        let stays = follow(&board);
        for _ in 0..100 {
            drop(follow(&board));
        }
        assert!(board.followers() <= 2, "{}", board.followers());
        assert!(!stays.is_closed());
    }

    #[test]
    fn waiting_reason_is_shown_until_cluster_is_seen() {
        let board = Board::live("/taskwork/default".to_owned());
        let waits = || serde_json::from_slice::<Value>(&board.text()).unwrap()["waits"].clone();
        assert_eq!((waits(), board.waits()), (Value::Null, false));
        board.begin_to_wait("there is no cluster".to_owned());
        // A missing cluster does not affect readiness.
        board.apply(&Event::of(1, "", Content::Found));
        board.apply(&Event::tick(1));
        assert_eq!((waits(), board.waits(), board.ready()), (json!("there is no cluster"), true, Ok(())));
        board.apply(&Event::of(2, "members/n1", Content::Data(b"anything".to_vec())));
        board.apply(&Event::tick(2));
        assert_eq!((waits(), board.waits()), (Value::Null, false));
        board.apply(&Event::of(3, "members/n1", Content::Gone));
        board.apply(&Event::tick(3));
        assert_eq!((waits(), board.waits()), (Value::Null, false), "the cluster existed");
    }

    #[test]
    fn view_is_serialized_once_for_all_followers() {
        let board = Board::replayed("record.jsonl".to_owned(), View::default());
        let whole = board.text();
        let mut from = follow(&board);
        let sent: Vec<Bytes> = std::iter::from_fn(|| from.try_recv().ok()).collect();
        assert!(sent.len() <= FIRST_MESSAGES, "{}", sent.len());
        assert!(sent.iter().any(|message| message.as_ptr() == whole.as_ptr()));
        let text = String::from_utf8(sent.concat()).unwrap();
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        assert_eq!((data.as_bytes(), text.ends_with("\n\n")), (&whole[..], true));
    }
}
