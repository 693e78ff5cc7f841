//! The execution of each fault of a plan.

use std::{sync::Arc, time::Duration};

use rand::{Rng as _, seq::IndexedRandom as _};
use taskwork::simulation::{forged_grant, forged_steal};
use tokio::time::sleep;
use zk::{CreateMode, Op, membership};

use super::Stage;
use crate::{
    invariants::{STRANGER, Seen},
    plan::{Fault, Kind, Program},
    workload::Walk,
    world::{MachineId, Process},
};

/// The interval at which nodes are uncordoned after the faults.
const UNCORDON_EVERY: Duration = Duration::from_millis(500);

/// The minimum number of nodes that stay where nothing may be lost.
const STAY_MIN: usize = 2;

impl Stage<'_> {
    fn any_machine(&self) -> Option<MachineId> {
        self.world.with(|state| {
            let living = state.machines.living();
            living.choose(&mut state.random).copied()
        })
    }

    fn leader(&self) -> Option<MachineId> {
        self.world.with(|state| {
            let names = state.servers.names(&self.setup.cluster.election());
            let number = |name: &str| name.rsplit('~').next().and_then(|digits| digits.parse::<u64>().ok());
            let first = names.into_iter().min_by_key(|name| number(name).unwrap_or(u64::MAX))?;
            state.machines.of(first.split('~').nth(1)?.parse().ok()?)
        })
    }

    /// Returns the machine on which the program of the workflow was started last.
    fn coordinator(&self) -> Option<MachineId> {
        self.world.with(|state| {
            let machine = state.machines.of(state.invariants.facts.coordinator?)?;
            state.machines.living().contains(&machine).then_some(machine)
        })
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        self.world.with(|state| state.note(format_args!("{fault:?}")));
        let Some(machine) = self.any_machine() else {
            if matches!(fault, Fault::Join) {
                self.join_any();
            }
            return;
        };
        match fault {
            Fault::Join => self.join_any(),
            Fault::Kill => self.kill(machine),
            Fault::KillLeader => self.kill(self.leader().unwrap_or(machine)),
            Fault::Freeze { ms } => self.freeze(machine, ms),
            Fault::FreezeLeader { ms } => self.freeze(self.leader().unwrap_or(machine), ms),
            // A node must remain that can receive the data.
            Fault::Drain | Fault::DrainCoordinator
                if self.plan.kind == Kind::Leaves && self.stay() <= STAY_MIN =>
            {
                self.join_any();
            }
            Fault::KillCoordinator => self.kill(self.coordinator().unwrap_or(machine)),
            Fault::FreezeCoordinator { ms } => self.freeze(self.coordinator().unwrap_or(machine), ms),
            Fault::DrainCoordinator => self.request_leave(self.coordinator().unwrap_or(machine)),
            Fault::Drain => self.request_leave(machine),
            Fault::DrainTwice { ms } => {
                self.request_leave(machine);
                let within = self.plan.leaves_within(machine.0, self.world.now() + ms);
                self.world.with(|state| {
                    let leave = state.machines.get(machine).leave.clone();
                    state.after(ms, move |_| {
                        let _ = leave.map(|leave| leave.try_send(within));
                    });
                });
            }
            Fault::DrainAll => {
                for machine in self.world.with(|state| state.machines.living()) {
                    self.request_leave(machine);
                }
            }
            Fault::Ask => self.ask_to_leave(machine),
            Fault::Cordon { ms } => self.cordon(&[machine], ms),
            Fault::CordonAll { ms } => self.cordon(&self.world.with(|state| state.machines.living()), ms),
            Fault::Cut { .. } | Fault::CutBothWays { .. } | Fault::Isolate { .. } => self.cut(machine, fault),
            Fault::CutFromServers { ms } => self.world.with(|state| state.cut_off(machine, ms)),
            Fault::Disconnect => self.world.with(|state| {
                for session in state.sessions_of(machine) {
                    state.lose_connection(session);
                }
            }),
            Fault::Expire => self.world.with(|state| {
                for session in state.sessions_of(machine) {
                    state.expire(session);
                }
            }),
            Fault::ServersAway { ms } => self.world.with(|state| state.servers_away(ms)),
            Fault::ServerAway { ms } => self.world.with(|state| state.server_away(ms)),
            Fault::Stall { ms } => self.world.with(|state| state.stall(ms)),
            Fault::Suspend { ms } => self.suspend(self.any_job(), ms),
            Fault::SuspendFirst { ms } => self.suspend(Some(self.job.clone()), ms),
            Fault::Cancel | Fault::CancelFirst => self.cancel(fault == Fault::CancelFirst),
            Fault::Forget => self.forget(),
            Fault::Restart { ms } => self.restart(machine, ms),
            Fault::Stuck { ms } => self.world.with(|state| state.machines.get(machine).stuck_ms = ms),
            Fault::StuckLeader { ms } => {
                let leader = self.leader().unwrap_or(machine);
                self.world.with(|state| state.machines.get(leader).stuck_ms = ms);
            }
            Fault::Stranger | Fault::Garbage => self.smuggle(machine, fault),
            Fault::Litter => self.litter(),
        }
    }

    /// Returns the number of nodes that were not asked to leave.
    fn stay(&self) -> usize {
        self.world.with(|state| state.machines.staying().len())
    }

    /// Starts a node, usually one of the first job's program.
    fn join_any(&mut self) {
        self.join(match self.world.with(|state| state.random.random_range(0..4)) {
            0 if self.plan.others > 0 => Program::Other,
            1 if self.plan.labelled > 0 => Program::Labelled,
            _ => Program::This,
        });
    }

    fn any_job(&self) -> Option<String> {
        let jobs = self.jobs();
        self.world.with(|state| jobs.choose(&mut state.random).cloned())
    }

    /// Acts like `taskwork cancel`.
    fn cancel(&mut self, first: bool) {
        let job = if first { Some(self.job.clone()) } else { self.any_job() };
        let Some(job) = job else { return };
        self.stopped.insert(job.clone());
        let (world, cluster) = (self.world.clone(), self.setup.cluster.clone());
        tokio::spawn(async move {
            let mut store = world.office().await;
            while zk::job::cancel(&*store, &cluster, &job, "enough", 0)
                .await
                .is_err_and(|it| it.is_transient())
            {
                sleep(Duration::from_millis(50)).await;
                store = world.office().await;
            }
        });
    }

    /// Acts like `taskwork retry` after this attempt, if the plan includes that. Returns whether it did.
    pub(super) fn retry_if_planned(&mut self, job: &str, attempt: u32) -> bool {
        let retried = self.retried.entry(job.to_owned()).or_default();
        if retried.contains(&attempt) {
            return true;
        }
        if retried.len() >= self.plan.retries {
            return false;
        }
        retried.insert(attempt);
        let (world, cluster, job) = (self.world.clone(), self.setup.cluster.clone(), job.to_owned());
        let key = format!("after {attempt}");
        tokio::spawn(async move {
            let mut store = world.office().await;
            while zk::job::retry(&*store, &cluster, &job, &key).await.is_err_and(|it| it.is_transient()) {
                sleep(Duration::from_millis(50)).await;
                store = world.office().await;
            }
        });
        true
    }

    /// Acts like `taskwork forget`.
    fn forget(&mut self) {
        let Some(job) = self.any_job() else { return };
        if self.record_of(&job).is_none_or(|record| !record.state.is_over()) {
            return;
        }
        // Forgetting an incomplete job also cancels it.
        self.stopped.insert(job.clone());
        let (store, cluster) = (Arc::clone(&self.store), self.setup.cluster.clone());
        tokio::spawn(async move { zk::job::forget(&*store, &cluster, &job).await });
    }

    fn restart(&mut self, machine: MachineId, ms: u64) {
        self.kill(machine);
        self.restarting.push((self.world.now() + ms, machine));
    }

    /// Starts the processes whose restart is due.
    pub(super) fn start_again(&mut self) {
        let now = self.world.now();
        let all = std::mem::take(&mut self.restarting);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|&(at, _)| at <= now);
        self.restarting = later;
        for (_, machine) in due {
            self.world.with(|state| state.machines.revive(machine));
            let program = self.programs.get(&machine).copied().unwrap_or(Program::This);
            self.start(machine, program);
        }
    }

    fn freeze(&self, machine: MachineId, ms: u64) {
        self.world.with(|state| state.freeze(machine, ms));
    }

    fn kill(&mut self, machine: MachineId) {
        self.world.with(|state| {
            state.kill(machine);
            state.note(format_args!("{machine} dies"));
        });
        if let Some(process) = self.processes.get(&machine) {
            process.abort();
        }
    }

    fn cut(&self, machine: MachineId, fault: Fault) {
        let Some(other) = self.any_machine() else { return };
        self.world.with(|state| match fault {
            Fault::Cut { ms } => state.cut(machine, other, ms),
            Fault::CutBothWays { ms } => {
                state.cut(machine, other, ms);
                state.cut(other, machine, ms);
            }
            Fault::Isolate { ms } => {
                for other in state.machines.living() {
                    state.cut(machine, other, ms);
                    state.cut(other, machine, ms);
                }
                state.cut_off(machine, ms);
            }
            _ => {}
        });
    }

    /// Acts like `taskwork drain`.
    fn ask_to_leave(&self, machine: MachineId) {
        let Some(node) = self.world.with(|state| {
            let it = state.machines.get(machine);
            it.process = Process::Leaves;
            let node = it.node?;
            state.see(&Seen::ToldToLeave { node });
            Some(node)
        }) else {
            return self.request_leave(machine);
        };
        let (store, path) = (Arc::clone(&self.store), self.setup.cluster.drain(&node.to_string()));
        // A request to a lost node would never be removed.
        let member = Op::Check { path: self.setup.cluster.member(&node.to_string()), version: None };
        let leave = self.world.with(|state| state.machines.get(machine).leave.clone());
        let within = self.leaves_within(machine);
        tokio::spawn(async move {
            // Tried only once. If it fails, an operator would kill the process instead.
            let ask = Op::Create { path, data: Vec::new(), mode: CreateMode::Persistent };
            if store.multi(vec![member, ask]).await.is_err() {
                let _ = leave.map(|leave| leave.try_send(within));
            }
        });
    }

    /// Acts like `taskwork cordon`, and later like `taskwork uncordon`.
    fn cordon(&self, machines: &[MachineId], ms: u64) {
        let nodes: Vec<String> = self.world.with(|state| {
            let node = |machine: &MachineId| Some(state.machines.get(*machine).node?.to_string());
            machines.iter().filter_map(node).collect()
        });
        let (store, cluster) = (Arc::clone(&self.store), self.setup.cluster.clone());
        tokio::spawn(async move {
            for node in &nodes {
                let _ = membership::cordon(&*store, &cluster, node).await;
            }
            sleep(Duration::from_millis(ms)).await;
            for node in &nodes {
                let _ = membership::uncordon(&*store, &cluster, node).await;
            }
        });
    }

    /// Uncordons all nodes from now on: a node that joins again under a new id may still be cordoned.
    pub(super) fn uncordon_all(&self) {
        let (world, cluster) = (self.world.clone(), self.setup.cluster.clone());
        tokio::spawn(async move {
            loop {
                let store = world.office().await;
                for node in store.children(&cluster.cordons()).await.unwrap_or_default() {
                    let _ = membership::uncordon(&*store, &cluster, &node).await;
                }
                sleep(UNCORDON_EVERY).await;
            }
        });
    }

    /// Acts like `taskwork suspend`, and later like `taskwork resume`.
    fn suspend(&self, job: Option<String>, ms: u64) {
        let Some(job) = job else { return };
        let (store, cluster) = (Arc::clone(&self.store), self.setup.cluster.clone());
        let world = self.world.clone();
        tokio::spawn(async move {
            let _ = zk::job::suspend(&*store, &cluster, &job, 0).await;
            sleep(Duration::from_millis(ms)).await;
            let mut store = store;
            // The job may be over and forgotten by then.
            while zk::job::resume(&*store, &cluster, &job, 0).await.is_err_and(|error| error.is_transient()) {
                sleep(Duration::from_millis(50)).await;
                store = world.office().await;
            }
        });
    }

    /// Puts messages that no node has sent into an inbox.
    fn smuggle(&self, machine: MachineId, fault: Fault) {
        let number = self.job.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
        self.world.with(|state| {
            let attempt = state.invariants.facts.first().map_or(0, |job| job.latest);
            let Some(node) = state.machines.get(machine).node else { return };
            if fault == Fault::Stranger {
                state.smuggle(STRANGER, node, forged_steal(number, attempt));
                state.smuggle(STRANGER, node, forged_grant(number, attempt, STRANGER, &Walk::forged()));
                return;
            }
            let living = state.machines.living();
            let other = living.choose(&mut state.random).copied();
            let Some(from) = other.and_then(|other| state.machines.get(other).node) else { return };
            let length = state.random.random_range(0..200);
            // It starts like a message about a job that does not exist: the rest must not matter.
            let bytes = [251, 1, 1].into_iter().chain((0..length).map(|_| state.random.random())).collect();
            state.smuggle(from, node, bytes);
        });
    }

    /// Creates unreadable znodes in folders that nodes read.
    fn litter(&self) {
        let (store, cluster, job) = (Arc::clone(&self.store), self.setup.cluster.clone(), self.job.clone());
        let attempt = self.world.with(|state| state.invariants.facts.first().map_or(1, |job| job.latest));
        let nodes = self.world.with(|state| state.servers.names(&cluster.members()));
        tokio::spawn(async move {
            let paths = cluster.job(&job).attempt(attempt);
            let mut litter = vec![
                cluster.member("nobody"),
                cluster.member("n00000000000000ff"),
                format!("{}/no-candidate", cluster.election()),
                format!("{}/no-job", cluster.jobs()),
                paths.parked_task("no-task"),
                format!("{}/no-node", cluster.drains()),
            ];
            litter.extend(nodes.iter().map(|node| format!("{}/m-litter", paths.mailbox(node))));
            for path in litter {
                let op = Op::Create {
                    path,
                    data: b"\xffnobody can read this".to_vec(),
                    mode: CreateMode::Persistent,
                };
                let _ = store.multi(vec![op]).await;
            }
        });
    }
}
