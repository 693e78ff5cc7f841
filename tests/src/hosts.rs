//! Several hosts on one machine: network namespaces on a bridge, whose links can be cut and slowed down.
//! Requires root, and the Debian packages `iproute2` and `nftables`. Nothing outside the namespaces is
//! changed.
//!
//! ```text
//!   host 0 (the test itself, ZooKeeper)   host 1   host 2   …        10.77.0.1, 10.77.0.2, 10.77.0.3 …
//!          └───────────────────────────────┴────────┴─── bridge, in a separate namespace
//! ```

use std::{
    fs::File,
    net::Ipv4Addr,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, setns};

/// The number of sets of hosts that this process has created, so that each has its own names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Hosts on a bridge. They are removed when this is dropped; their processes must have exited before.
#[derive(Debug)]
pub struct Hosts {
    /// The previous namespace of the calling thread.
    before: File,
    prefix: String,
    count: u8,
}

/// Returns whether hosts can be created, which only root can do.
///
/// # Panics
/// If they cannot, although `CI` is `true`: a skipped layer of tests is a failure there.
pub fn can_be_made() -> bool {
    let root = nix::unistd::geteuid().is_root();
    assert!(root || std::env::var("CI").as_deref() != Ok("true"), "only root can make network namespaces");
    if !root {
        eprintln!("\nWARNING: only root can make network namespaces. THIS TEST IS LEFT OUT.\n");
    }
    root
}

/// The network namespace of the calling thread.
const THIS_NAMESPACE: &str = "/proc/thread-self/ns/net";

impl Hosts {
    /// Creates hosts, and moves the calling thread to host 0: processes that it starts from now on run there.
    ///
    /// # Errors
    /// If the user is not root, or the tools are missing.
    pub fn new(count: u8) -> Result<Self> {
        let prefix = format!("tw{}x{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let before = File::open(THIS_NAMESPACE).context("this thread's namespace cannot be opened")?;
        let this = Self { before, prefix, count };
        let switch = this.name("sw");
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "br0", "up"])?;
        for number in 0..count {
            let (host, port) = (this.host(number), format!("p{number}"));
            ip(&["netns", "add", &host])?;
            let pair = ["type", "veth", "peer", "name", &port, "netns", &switch];
            ip(&[&["link", "add", "eth0", "netns", &host][..], &pair].concat())?;
            ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"])?;
            let address = format!("{}/24", this.address(number));
            ip(&["-n", &host, "addr", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &host, "link", "set", "eth0", "up"])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
        }
        let namespace = File::open(format!("/run/netns/{}", this.host(0))).context("no such namespace")?;
        setns(namespace, CloneFlags::CLONE_NEWNET).context("the namespace cannot be entered")?;
        Ok(this)
    }

    /// Returns the name of a host's namespace.
    pub fn host(&self, number: u8) -> String {
        self.name(&number.to_string())
    }

    /// Returns the address of a host.
    pub fn address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, number + 1)
    }

    /// Drops all packets from one host to another.
    ///
    /// # Errors
    /// If `nft` refuses.
    pub fn cut(&self, from: u8, to: u8) -> Result<()> {
        let table = "add table inet cut; add chain inet cut out { type filter hook output priority 0; }";
        let rule = format!("{table}; add rule inet cut out ip daddr {} drop", self.address(to));
        ip(&["netns", "exec", &self.host(from), "nft", &rule])
    }

    /// Drops all packets that a host sends or receives.
    ///
    /// # Errors
    /// If `nft` refuses.
    pub fn isolate(&self, host: u8) -> Result<()> {
        for other in (0..self.count).filter(|&other| other != host) {
            self.cut(host, other)?;
            self.cut(other, host)?;
        }
        Ok(())
    }

    /// Removes every cut.
    ///
    /// # Errors
    /// If `nft` refuses.
    pub fn heal(&self) -> Result<()> {
        (0..self.count).try_for_each(|host| ip(&["netns", "exec", &self.host(host), "nft", "flush ruleset"]))
    }

    /// Limits the traffic that a host sends to this many kilobits per second.
    ///
    /// # Errors
    /// If `tc` refuses.
    pub fn slow_down(&self, host: u8, kbit: u32) -> Result<()> {
        let rate = format!("{kbit}kbit");
        let limits = ["rate", &rate, "burst", "8kb", "latency", "200ms"];
        let queue = ["netns", "exec", &self.host(host), "tc", "qdisc", "add", "dev", "eth0", "root", "tbf"];
        ip(&[&queue[..], &limits].concat())
    }

    fn name(&self, end: &str) -> String {
        format!("{}-{end}", self.prefix)
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("ip cannot be started")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {error}", arguments.join(" "));
    Ok(())
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // The thread may run other tests after this one.
        let _ = setns(&self.before, CloneFlags::CLONE_NEWNET);
        for number in 0..self.count {
            // The namespace may not exist.
            let _ = ip(&["netns", "del", &self.host(number)]);
        }
        let _ = ip(&["netns", "del", &self.name("sw")]);
    }
}
