//! The log of an outage of ZooKeeper: one line at its start and one at its end, regardless of the number of retries.

use zk::{Error, Session};

/// The state of requests for jobs to ZooKeeper.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Outage {
    #[default]
    None,
    Lasts(Cause),
}

/// The last failure of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Connection,
    /// The request failed although the session was connected, so a connection does not prove the end.
    Other,
}

impl Outage {
    /// Records a failed request. Returns whether it starts an outage.
    pub(super) fn on_failure(&mut self, error: &Error) -> bool {
        let is_connection = matches!(error, Error::ConnectionLost | Error::TimedOut { .. });
        let cause = if is_connection { Cause::Connection } else { Cause::Other };
        std::mem::replace(self, Self::Lasts(cause)) == Self::None
    }

    /// Records the state of the session before the next try. Returns whether an outage has ended.
    pub(super) fn on_retry(&mut self, session: Session) -> bool {
        let is_over = *self == Self::Lasts(Cause::Connection) && session == Session::Connected;
        if is_over {
            *self = Self::None;
        }
        is_over
    }

    /// Records an answer. Returns whether an outage has ended.
    pub(super) fn on_answer(&mut self) -> bool {
        std::mem::take(self) != Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_with_many_tries_is_logged_at_its_start_and_end_only() {
        let mut outage = Outage::default();
        for _ in 0..2 {
            assert!(outage.on_failure(&Error::ConnectionLost));
            for _ in 0..100 {
                assert!(!outage.on_retry(Session::Disconnected));
                assert!(!outage.on_failure(&Error::TimedOut { waited_ms: 1 }));
            }
            assert!(outage.on_retry(Session::Connected));
            assert!(!outage.on_retry(Session::Connected) && !outage.on_answer());
        }
    }

    #[test]
    fn request_refused_by_a_connected_server_is_logged_once_until_an_answer() {
        let mut outage = Outage::default();
        let refused = Error::NoAuth { path: "/jobs".to_owned() };
        assert!(outage.on_failure(&refused));
        for _ in 0..100 {
            assert!(!outage.on_retry(Session::Connected) && !outage.on_failure(&refused));
        }
        assert!(outage.on_answer() && !outage.on_answer());
    }
}
