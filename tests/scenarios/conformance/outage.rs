//! Outages that are longer than a session, on real servers: a session is over when a server says so, and not
//! before.

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use taskwork_tests::proxy::Proxy;
use zk::{
    Connect, CreateMode, Error, Session, WatchEvent,
    election::Candidate,
    membership::{self, Change, MemberWatch},
};
use zk_server::{Servers, Setup};

use super::{Connected, JOB, cluster, member, runtime, soon};

/// The shortest session timeout that servers with this tick grant by default.
const SESSION: Duration = Duration::from_secs(2);
/// Longer than 7/5 of a session timeout, after which the client library gives up.
const OUTAGE: Duration = Duration::from_millis(3500);

async fn short_session(hosts: &str) -> Connected {
    let connect_timeout = Duration::from_secs(90);
    let connect = Connect { session_timeout: SESSION, connect_timeout, ..Connect::new(hosts) };
    connect.open().await.expect("the servers serve") as Connected
}

fn hosts_of(servers: &Servers) -> SocketAddr {
    servers.hosts().parse().unwrap()
}

async fn is(store: &Connected, state: Session) {
    soon(store.session().wait_for(|now| *now == state)).await.unwrap();
}

/// Returns the number of the session that holds an ephemeral.
async fn owner(store: &Connected, path: &str) -> Option<i64> {
    loop {
        match store.exists(path).await {
            Ok(stat) => return stat.map(|stat| stat.ephemeral_owner),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn session_survives_outage_longer_than_its_timeout() {
    for setup in [Setup::standalone(), Setup::ensemble()] {
        let mut servers = Servers::start(&setup).unwrap();
        runtime().block_on(async {
            let store = short_session(&servers.hosts()).await;
            let cluster = cluster(&store, "outage").await;
            membership::join(&*store, &cluster, &member("a")).await.unwrap();
            let mut members = MemberWatch::open(Arc::clone(&store), &cluster).await.unwrap();
            assert_eq!(soon(members.next()).await, Ok(Change::Joined(member("a"))));
            let path = cluster.member("a");
            let mut candidate = Candidate::enter(Arc::clone(&store), &cluster, JOB, "a").await.unwrap();
            let fence = candidate.elected().await.unwrap();
            let (_, one_time) = store.children_and_watch("/").await.unwrap();
            let mut stream = store.watch_tree("/taskwork").await.unwrap();
            let before = owner(&store, &path).await;

            let all = 0..servers.count();
            all.clone().for_each(|server| servers.kill(server).unwrap());
            is(&store, Session::Disconnected).await;
            thread::sleep(OUTAGE);
            assert_eq!(*store.session().borrow(), Session::Disconnected, "its state is unknown");
            assert_eq!(store.get("/").await, Err(Error::ConnectionLost));
            all.clone().for_each(|server| servers.revive(server).unwrap());
            all.for_each(|server| servers.wait_until_serving(server).unwrap());

            is(&store, Session::Connected).await;
            assert_eq!(owner(&store, &path).await, before, "the same session");
            assert!(store.multi(vec![fence.check()]).await.is_ok(), "it leads as before");
            // Earlier watches report that events may have been lost, and the recipes continue.
            assert_eq!(soon(one_time).await, WatchEvent::Rescan);
            assert_eq!(soon(stream.next()).await, WatchEvent::Rescan);
            let other = short_session(&servers.hosts()).await;
            membership::join(&*other, &cluster, &member("b")).await.unwrap();
            let joined = loop {
                match soon(members.next()).await {
                    Ok(change) => break change,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            };
            assert_eq!(joined, Change::Joined(member("b")), "and no member has left");
            store.close().await.unwrap();
            // Its last changes may be reported before.
            while let Ok(change) = soon(members.next()).await {
                assert_eq!(change, Change::Left("a".to_owned()));
            }
            assert_eq!(soon(members.next()).await, Err(Error::SessionExpired));
        });
    }
}

#[test]
fn session_ended_by_server_is_over_when_client_learns_it() {
    let servers = Servers::start(&Setup::standalone()).unwrap();
    let proxy = Proxy::start(hosts_of(&servers)).unwrap();
    runtime().block_on(async {
        let (store, other) =
            (short_session(&proxy.address().to_string()).await, short_session(&servers.hosts()).await);
        store.create("/e", b"", CreateMode::Ephemeral).await.unwrap();
        let (stat, gone) = other.exists_and_watch("/e").await.unwrap();
        assert!(stat.is_some());
        let (_, one_time) = store.get_and_watch("/").await.map(|(data, _, watch)| (data, watch)).unwrap();
        let mut stream = store.watch_tree("/e").await.unwrap();
        // The server ends it while the client still considers it alive.
        proxy.cut();
        assert_eq!(soon(gone).await, WatchEvent::Deleted("/e".to_owned()));
        proxy.restore();
        is(&store, Session::Expired).await;
        assert_eq!(soon(one_time).await, WatchEvent::Ended);
        assert_eq!(soon(stream.next()).await, WatchEvent::Ended);
        assert_eq!(store.get("/").await, Err(Error::SessionExpired));
        // The server ends it after the client has given up on it.
        let store = short_session(&proxy.address().to_string()).await;
        proxy.cut();
        thread::sleep(OUTAGE);
        assert_eq!(*store.session().borrow(), Session::Disconnected);
        proxy.restore();
        is(&store, Session::Expired).await;
    });
}

#[test]
fn first_connection_is_tried_for_its_own_timeout() {
    let mut servers = Servers::start(&Setup::standalone()).unwrap();
    servers.kill(0).unwrap();
    runtime().block_on(async {
        let hosts = servers.hosts();
        let opening = tokio::spawn(async move { short_session(&hosts).await });
        thread::sleep(OUTAGE);
        assert!(!opening.is_finished(), "its time is not over");
        servers.revive(0).unwrap();
        servers.wait_until_serving(0).unwrap();
        assert!(soon(opening).await.unwrap().exists("/").await.is_ok());
        // A server that accepts connections but never answers does not count.
        let proxy = Proxy::start(hosts_of(&servers)).unwrap();
        proxy.stay_half_open();
        let hosts = proxy.address().to_string();
        let waiting = tokio::spawn(async move { short_session(&hosts).await });
        thread::sleep(OUTAGE);
        proxy.restore();
        assert!(soon(waiting).await.unwrap().exists("/").await.is_ok());
    });
}

#[test]
fn session_closed_during_outage_is_over() {
    let mut servers = Servers::start(&Setup::standalone()).unwrap();
    runtime().block_on(async {
        let store = short_session(&servers.hosts()).await;
        let dropped = short_session(&servers.hosts()).await;
        let mut state = dropped.session();
        servers.kill(0).unwrap();
        thread::sleep(OUTAGE);
        assert_eq!(soon(store.close()).await, Ok(()));
        assert_eq!(store.get("/").await, Err(Error::SessionExpired));
        drop(dropped);
        soon(state.wait_for(|state| *state == Session::Expired)).await.unwrap();
    });
}
