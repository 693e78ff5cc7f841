//! Observes a cluster: turns changes of its znodes into the events of a [view](crate::view).
//!
//! One session sets one watch on the whole subtree of the cluster, and reads the changed znodes: each one once,
//! however often it has changed since the last read, and at most [`READS_PER_S`] per second. It never writes. Tasks
//! are only counted, once per second.
//!
//! After a lost connection the watch is set again and everything is read again, since changes may have been missed.
//! Until then the view shows since when it has been out of date.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::{self, Instant, MissedTickBehavior};
use zk::{Answer, ClusterPaths, Events, Session, Stat, Store, WatchEvent, job};

pub(crate) use super::reading::Scope;
use super::{
    clock::unix_ms,
    reading::{Reading, Work},
};
use crate::view::{Content, Event, Place, Snapshot, View};

const READS_PER_S: u32 = 500;
/// The interval at which reads are sent.
const PACE: Duration = Duration::from_millis(20);
const READS_AT_ONCE: usize = (READS_PER_S / 50) as usize;
const TICK: Duration = Duration::from_secs(1);
/// The maximum number of unanswered reads.
const UNANSWERED_MAX: usize = 4 * READS_AT_ONCE;

/// The content of znodes that the observer is not permitted to read. It cannot be decoded as a record.
const FORBIDDEN: &[u8] = b"ZooKeeper does not permit this observer to read it";

/// The pause before the watch is set again after an error.
const PAUSE: Duration = Duration::from_millis(200);

/// The answer to a read.
enum Read {
    Data(Answer<(Vec<u8>, Stat)>),
    Stat(Answer<Option<Stat>>),
    Names(Answer<Vec<String>>),
}

/// Reads the state of a cluster once, without a watch.
///
/// # Errors
/// Any error from the store.
pub(crate) async fn look(store: &dyn Store, cluster: &ClusterPaths, scope: Scope) -> zk::Result<Snapshot> {
    // Includes everything that nodes have committed before the call.
    store.sync(&cluster.base()).await?;
    let mut view = View::keeping(match &scope {
        Scope::Job(job) => Some(job.clone()),
        Scope::Current | Scope::Records => None,
    });
    let mut observer = |event: Event| view.apply(&event);
    let mut observation = Observation::of(scope, cluster.clone(), &mut observer);
    observation.read_all(store).await?;
    observation.tick();
    Ok(view.snapshot())
}

/// A monotonic time of day. If the machine's clock is set back, the time continues from its previous value; if the
/// clock leaps ahead, as after a suspension of the machine, the time follows it.
#[derive(Debug, Clone, Copy)]
struct WallClock {
    ms: u64,
    at: Instant,
}

impl WallClock {
    /// Returns the time in milliseconds since 1970. `wall_ms` is the time of the machine's clock.
    fn now(&mut self, wall_ms: u64, at: Instant) -> u64 {
        let passed = at.saturating_duration_since(self.at);
        let steady = self.ms.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
        if wall_ms > steady {
            *self = Self { ms: wall_ms, at };
        }
        wall_ms.max(steady)
    }
}

/// The result of a read; `None` if the znode does not exist.
enum Found {
    Data(Option<Vec<u8>>),
    Children(Option<u32>),
    Names(Vec<String>),
}

/// An observation of a cluster, which outlives sessions.
pub(crate) struct Observation<'a> {
    cluster: ClusterPaths,
    reading: Reading,
    observer: &'a mut (dyn FnMut(Event) + Send),
    /// Whether an outage of ZooKeeper has been reported.
    is_lost: bool,
    /// Whether everything has been read since the watch was set.
    is_whole: bool,
    clock: WallClock,
    due: Instant,
}

impl<'a> Observation<'a> {
    pub(crate) fn new(cluster: ClusterPaths, observer: &'a mut (dyn FnMut(Event) + Send)) -> Self {
        Self::of(Scope::default(), cluster, observer)
    }

    fn of(scope: Scope, cluster: ClusterPaths, observer: &'a mut (dyn FnMut(Event) + Send)) -> Self {
        let (reading, due) = (Reading::of(scope), Instant::now());
        let clock = WallClock { ms: unix_ms(), at: due };
        Self { cluster, reading, observer, is_lost: false, is_whole: false, clock, due }
    }

    /// Observes in one session until it ends or ZooKeeper refuses a request.
    pub(crate) async fn follow(&mut self, store: Arc<dyn Store>) -> zk::Error {
        loop {
            if let Err(error) = self.follow_one_watch(&store).await {
                if *store.session().borrow() == Session::Expired {
                    return zk::Error::SessionExpired;
                }
                if !error.is_transient() {
                    return error;
                }
                self.lose();
                self.meanwhile(time::sleep(PAUSE)).await;
            }
        }
    }

    /// Reports that ZooKeeper does not answer. The view shows this immediately.
    pub(crate) fn lose(&mut self) {
        if !self.is_lost {
            self.is_lost = true;
            self.emit("", Content::Lost);
            self.tick();
        }
    }

    /// Waits for a future, and advances the time of the view until it completes.
    pub(crate) async fn meanwhile<T>(&mut self, doing: impl Future<Output = T>) -> T {
        tokio::pin!(doing);
        loop {
            tokio::select! {
                biased;
                done = &mut doing => return done,
                () = time::sleep_until(self.due) => self.tick(),
            }
        }
    }

    /// Applies the changes reported so far to the view.
    fn tick(&mut self) {
        self.due = Instant::now() + TICK;
        self.emit("", Content::Tick);
    }

    /// Observes until the watch has to be set again.
    async fn follow_one_watch(&mut self, store: &Arc<dyn Store>) -> zk::Result<()> {
        let base = self.cluster.base();
        // Set before the first read, so that no change is missed.
        let mut events: Box<dyn Events> = self.meanwhile(store.watch_tree(&base)).await?;
        // This server may lag behind the server of the earlier answers.
        self.meanwhile(store.sync(&base)).await?;
        self.reading.begin();
        self.is_whole = false;
        let mut session = store.session();
        let mut pace = time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unanswered: VecDeque<(Work, Read)> = VecDeque::new();
        loop {
            // Ticks and reads come first, so that a continuous stream of events does not starve them.
            tokio::select! {
                biased;
                () = time::sleep_until(self.due) => {
                    self.reading.tick();
                    self.tick();
                }
                changed = session.changed() => {
                    let state = *session.borrow_and_update();
                    if changed.is_err() || state == Session::Expired {
                        return Err(zk::Error::SessionExpired);
                    }
                    if state == Session::Disconnected {
                        self.lose();
                    }
                }
                (work, found) = answer(&mut unanswered), if !unanswered.is_empty() => match found {
                    Ok(found) => self.take(work, found),
                    Err(error) if error.is_transient() => self.reading.again(work),
                    Err(error) => return Err(error),
                },
                _ = pace.tick(), if self.reading.has_work() => {
                    let room = UNANSWERED_MAX.saturating_sub(unanswered.len()).min(READS_AT_ONCE);
                    for _ in 0..room {
                        let Some(work) = self.reading.next() else { break };
                        unanswered.push_back((work.clone(), self.read(&**store, &work)));
                    }
                }
                event = events.next() => match event {
                    WatchEvent::Created(path) | WatchEvent::DataChanged(path) => self.changed(&path),
                    WatchEvent::Deleted(path) => self.deleted(&path),
                    WatchEvent::ChildrenChanged(_) => {}
                    WatchEvent::Rescan | WatchEvent::Ended => return Ok(()),
                },
            }
            let is_idle = unanswered.is_empty() && !self.reading.has_work();
            if is_idle && !self.reading.advance() && !self.is_whole {
                (self.is_whole, self.is_lost) = (true, false);
                self.emit("", Content::Found);
                self.tick();
            }
        }
    }

    /// Reads everything once, as fast as the server answers.
    async fn read_all(&mut self, store: &dyn Store) -> zk::Result<()> {
        let mut unanswered: VecDeque<(Work, Read)> = VecDeque::new();
        self.reading.begin();
        loop {
            while unanswered.len() < UNANSWERED_MAX
                && let Some(work) = self.reading.next()
            {
                unanswered.push_back((work.clone(), self.read(store, &work)));
            }
            if unanswered.is_empty() {
                if self.reading.advance() {
                    continue;
                }
                return Ok(());
            }
            let (work, found) = answer(&mut unanswered).await;
            self.take(work, found?);
        }
    }

    fn read(&self, store: &dyn Store, work: &Work) -> Read {
        let path = |below: &str| format!("{}/{below}", self.cluster.base());
        match work {
            Work::Read(below) => Read::Data(store.get(&path(below))),
            Work::Count(below) => Read::Stat(store.exists(&path(below))),
            Work::List(below) => Read::Names(store.children(&path(below))),
        }
    }

    /// Applies the result of a read.
    fn take(&mut self, work: Work, found: Found) {
        match (work, found) {
            (Work::Read(path), Found::Data(Some(content))) => {
                if self.reading.is_there(&path) {
                    // The view reports undecodable records.
                    if let Some(Place::Job { .. }) = Place::of(&path)
                        && let Ok(record) = job::decode(&path, &content)
                    {
                        self.reading.job(&path, &record);
                    }
                    self.emit(&path, Content::Data(content));
                }
            }
            (Work::Count(path), Found::Children(Some(children))) => {
                if self.reading.is_there(&path) {
                    self.emit(&path, Content::Children(children));
                }
            }
            (Work::List(folder), Found::Names(names)) => {
                let listed = self.reading.listed(&folder, &names);
                for path in listed.gone {
                    self.emit(&path, Content::Gone);
                }
                for path in listed.named {
                    self.emit(&path, Content::Data(Vec::new()));
                }
            }
            (Work::Read(path) | Work::Count(path), _) => self.gone(&path),
            (Work::List(_), _) => {}
        }
    }

    fn changed(&mut self, path: &str) {
        if let Some(below) = self.below(path)
            && self.reading.changed(below)
        {
            self.emit(below, Content::Data(Vec::new()));
        }
    }

    fn deleted(&mut self, path: &str) {
        if let Some(below) = self.below(path) {
            self.gone(below);
        }
    }

    fn gone(&mut self, path: &str) {
        if self.reading.gone(path) {
            self.emit(path, Content::Gone);
        }
    }

    fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(&self.cluster.base())?.strip_prefix('/')
    }

    fn emit(&mut self, path: &str, content: Content) {
        let now_ms = self.clock.now(unix_ms(), Instant::now());
        (self.observer)(Event::of(now_ms, path, content));
    }
}

/// Waits for the answer to the first read.
///
/// # Cancellation safety
/// Dropping the future loses no answer.
async fn answer(unanswered: &mut VecDeque<(Work, Read)>) -> (Work, zk::Result<Found>) {
    let Some((_, read)) = unanswered.front_mut() else { return std::future::pending().await };
    let found = match read {
        Read::Data(answer) => match missing(answer.await.map(|(content, _)| content)) {
            // This content differs from that of the znode: the view warns of it, and shows the rest.
            Err(zk::Error::NoAuth { .. }) => Ok(Found::Data(Some(FORBIDDEN.to_vec()))),
            found => found.map(Found::Data),
        },
        Read::Stat(answer) => answer.await.map(|stat| Found::Children(stat.map(|stat| stat.children))),
        Read::Names(answer) => missing(answer.await).map(|names| Found::Names(names.unwrap_or_default())),
    };
    match unanswered.pop_front() {
        Some((work, _)) => (work, found),
        None => std::future::pending().await,
    }
}

/// Converts the error of a missing znode to `None`.
fn missing<T>(answer: zk::Result<T>) -> zk::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(zk::Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_continues_when_set_back_and_follows_when_set_ahead() {
        let begin = Instant::now();
        let after = |s| begin + Duration::from_secs(s);
        let mut clock = WallClock { ms: 10_000_000, at: begin };
        assert_eq!(clock.now(10_005_000, after(5)), 10_005_000);
        assert_eq!(clock.now(6_406_000, after(6)), 10_006_000, "an hour back");
        assert_eq!(clock.now(6_409_000, after(9)), 10_009_000);
        assert_eq!(clock.now(10_500_000, after(10)), 10_500_000, "ahead");
        assert_eq!(clock.now(10_400_000, after(11)), 10_501_000);
    }

    #[tokio::test]
    async fn forbidden_znode_causes_a_warning_only() {
        let path = "jobs/j-0000000001";
        let refusal: Answer<(Vec<u8>, Stat)> =
            Box::pin(std::future::ready(Err(zk::Error::NoAuth { path: path.to_owned() })));
        let mut unanswered = VecDeque::from([(Work::Read(path.to_owned()), Read::Data(refusal))]);
        let (work, found) = answer(&mut unanswered).await;
        let mut view = View::default();
        let mut observer = |event: Event| view.apply(&event);
        let mut observation = Observation::new(ClusterPaths::new("seen").unwrap(), &mut observer);
        observation.take(work, found.unwrap());
        observation.tick();
        let snapshot = view.snapshot();
        assert_eq!(snapshot.warnings.keys().collect::<Vec<_>>(), [path]);
        assert_eq!(snapshot.jobs["j-0000000001"].about.stage, crate::view::Stage::Unreadable);
    }
}
