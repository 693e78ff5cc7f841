//! The records of a cluster in ZooKeeper, as its nodes have written them.

pub use zk::{
    Latencies, Requests,
    figures::{
        Best, EventKind, Givers, Ledger, NodeFigures, PoolNow, ProcessNow, Sense, StolenFrom, TimelineEvent,
    },
    job::{JobRecord, Lost},
    membership::Member,
};
