//! Observes a cluster: turns what changes in its znodes into the events of a [view](crate::view).
//!
//! One session sets one watch on everything below the cluster, and reads what has changed: each znode once, however
//! often it has changed meanwhile, and at most [`READS_PER_S`] in a second. It never writes. Of tasks only the number
//! is read, once a second.
//!
//! After a lost connection the watch is set again and everything is read again, since changes may have been missed.
//! Until then the view says since when it is out of date.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::{self, Instant, MissedTickBehavior};
use zk::{Answer, ClusterPaths, Events, Session, Stat, Store, WatchEvent, job};

pub(crate) use super::reading::Scope;
use super::{
    clock::unix_ms,
    reading::{Reading, Work},
};
use crate::view::{Content, Event, Place, Snapshot, View};

/// The maximum number of reads in a second.
const READS_PER_S: u32 = 500;
/// The interval at which reads are sent.
const PACE: Duration = Duration::from_millis(20);
/// The number of reads that are sent at a time.
const READS_AT_ONCE: usize = (READS_PER_S / 50) as usize;
/// The interval of ticks.
const TICK: Duration = Duration::from_secs(1);
/// The number of reads that may be unanswered.
const UNANSWERED_MAX: usize = 4 * READS_AT_ONCE;

/// The pause before the watch is set again after an error.
const PAUSE: Duration = Duration::from_millis(200);

/// The answer to a read.
enum Read {
    Data(Answer<(Vec<u8>, Stat)>),
    Stat(Answer<Option<Stat>>),
    Names(Answer<Vec<String>>),
}

/// Looks at a cluster once, without a watch.
///
/// # Errors
/// Any error from the store.
pub(crate) async fn look(store: &dyn Store, cluster: &ClusterPaths, scope: Scope) -> zk::Result<Snapshot> {
    // What nodes have committed before the call is seen.
    store.sync(&cluster.base()).await?;
    let mut view = View::default();
    let mut tell = |event: Event| view.apply(&event);
    Observation::of(scope, cluster.clone(), &mut tell).read_all(store).await?;
    view.apply(&Event::tick(unix_ms()));
    Ok(view.snapshot())
}

/// What a read has found; `None` if the znode does not exist.
enum Found {
    Data(Option<Vec<u8>>),
    Children(Option<u32>),
    Names(Vec<String>),
}

/// An observation of a cluster, which outlives sessions.
pub(crate) struct Observation<'a> {
    cluster: ClusterPaths,
    reading: Reading,
    tell: &'a mut (dyn FnMut(Event) + Send),
    /// Whether it was told that ZooKeeper does not answer.
    is_lost: bool,
    /// Whether everything has been read since the watch was set.
    is_whole: bool,
}

impl<'a> Observation<'a> {
    pub(crate) fn new(cluster: ClusterPaths, tell: &'a mut (dyn FnMut(Event) + Send)) -> Self {
        Self::of(Scope::default(), cluster, tell)
    }

    fn of(scope: Scope, cluster: ClusterPaths, tell: &'a mut (dyn FnMut(Event) + Send)) -> Self {
        Self { cluster, reading: Reading::of(scope), tell, is_lost: false, is_whole: false }
    }

    /// Observes in a session until that ends, or ZooKeeper refuses something.
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

    /// Says that ZooKeeper does not answer.
    pub(crate) fn lose(&mut self) {
        if !self.is_lost {
            self.is_lost = true;
            self.say("", Content::Lost);
        }
    }

    /// Waits for something, and lets time pass in the view.
    pub(crate) async fn meanwhile<T>(&mut self, doing: impl Future<Output = T>) -> T {
        tokio::pin!(doing);
        loop {
            (self.tell)(Event::tick(unix_ms()));
            if let Ok(done) = time::timeout(TICK, &mut doing).await {
                return done;
            }
        }
    }

    /// Observes until the watch has to be set again.
    async fn follow_one_watch(&mut self, store: &Arc<dyn Store>) -> zk::Result<()> {
        let base = self.cluster.base();
        // Set before the first read, so that no change is missed.
        let mut events: Box<dyn Events> = store.watch_tree(&base).await?;
        // This server may be behind the one that answered before.
        store.sync(&base).await?;
        self.reading.begin();
        self.is_whole = false;
        let mut session = store.session();
        let mut ticks = time::interval_at(Instant::now() + TICK, TICK);
        let mut pace = time::interval(PACE);
        for interval in [&mut ticks, &mut pace] {
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut unanswered: VecDeque<(Work, Read)> = VecDeque::new();
        loop {
            // Ticks and reads come first, so that they do not starve if there are events all the time.
            tokio::select! {
                biased;
                _ = ticks.tick() => {
                    self.reading.tick();
                    (self.tell)(Event::tick(unix_ms()));
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
                self.say("", Content::Found);
                (self.tell)(Event::tick(unix_ms()));
            }
        }
    }

    /// Reads everything once, as fast as it is answered.
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

    /// Takes what a read has found.
    fn take(&mut self, work: Work, found: Found) {
        match (work, found) {
            (Work::Read(path), Found::Data(Some(content))) => {
                if self.reading.is_there(&path) {
                    // What cannot be read is a matter of the view.
                    if let Some(Place::Job { .. }) = Place::of(&path)
                        && let Ok(record) = job::decode(&path, &content)
                    {
                        self.reading.job(&path, &record);
                    }
                    self.say(&path, Content::Data(content));
                }
            }
            (Work::Count(path), Found::Children(Some(children))) => {
                if self.reading.is_there(&path) {
                    self.say(&path, Content::Children(children));
                }
            }
            (Work::List(folder), Found::Names(names)) => {
                let listed = self.reading.listed(&folder, &names);
                for path in listed.gone {
                    self.say(&path, Content::Gone);
                }
                for path in listed.named {
                    self.say(&path, Content::Data(Vec::new()));
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
            self.say(below, Content::Data(Vec::new()));
        }
    }

    fn deleted(&mut self, path: &str) {
        if let Some(below) = self.below(path) {
            self.gone(below);
        }
    }

    fn gone(&mut self, path: &str) {
        if self.reading.gone(path) {
            self.say(path, Content::Gone);
        }
    }

    fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(&self.cluster.base())?.strip_prefix('/')
    }

    fn say(&mut self, path: &str, content: Content) {
        (self.tell)(Event::of(unix_ms(), path, content));
    }
}

/// Waits for the answer to the first read.
///
/// # Cancellation safety
/// Dropping the future loses no answer.
async fn answer(unanswered: &mut VecDeque<(Work, Read)>) -> (Work, zk::Result<Found>) {
    let Some((_, read)) = unanswered.front_mut() else { return std::future::pending().await };
    let found = match read {
        Read::Data(answer) => missing(answer.await.map(|(content, _)| content)).map(Found::Data),
        Read::Stat(answer) => answer.await.map(|stat| Found::Children(stat.map(|stat| stat.children))),
        Read::Names(answer) => missing(answer.await).map(|names| Found::Names(names.unwrap_or_default())),
    };
    match unanswered.pop_front() {
        Some((work, _)) => (work, found),
        None => std::future::pending().await,
    }
}

/// Turns the error that a znode does not exist into nothing.
fn missing<T>(answer: zk::Result<T>) -> zk::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(zk::Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
