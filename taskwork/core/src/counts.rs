//! The counts of a node's protocol.

/// The protocol's part of a node's figures, since the node started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Steal requests sent to other nodes.
    pub requests: u64,
    /// Grants received from other nodes in answer to a steal request.
    pub steals: u64,
    /// Tasks received from other nodes.
    pub stolen_tasks: u64,
    /// Coordination transactions committed: batches, claims of parked tasks, clean leaves.
    pub transactions: u64,
    /// Coordination transactions that were rebuilt or sent again.
    pub retries: u64,
    /// Tasks handed over to other nodes when leaving.
    pub handed_on: u64,
    /// Tasks parked in ZooKeeper when leaving, because no node took them.
    pub parked: u64,
    /// Tasks continued from the last written state of departed nodes.
    pub recovered: u64,
    /// Grants whose tasks were dropped because the victim was lost before it had written the grant.
    pub dropped: u64,
    /// Task ids that the transactions toggled in the global task list.
    pub toggles: u64,
}
