//! Several hosts on one machine: network namespaces on a bridge, between which links can be cut and made
//! slow. Needs root, and the Debian packages `iproute2` and `nftables`; nothing outside the namespaces is
//! touched.
//!
//! ```text
//!   host 0 (the test itself, ZooKeeper)   host 1   host 2   …        10.77.0.1, 10.77.0.2, 10.77.0.3 …
//!          └───────────────────────────────┴────────┴─── bridge, in a namespace of its own
//! ```

use std::{
    fs::File,
    net::Ipv4Addr,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, setns};

/// How many sets of hosts this process has made, so that each has names of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Hosts on a bridge. They go when this is dropped; so must whatever runs there before.
#[derive(Debug)]
pub struct Hosts {
    prefix: String,
    count: u8,
}

/// Whether hosts can be made: only root can.
///
/// # Panics
/// If not, although `CI` is `true`: a layer of tests that is left out is a failure there.
pub fn can_be_made() -> bool {
    let root = nix::unistd::geteuid().is_root();
    assert!(root || std::env::var("CI").as_deref() != Ok("true"), "only root can make network namespaces");
    if !root {
        eprintln!("\nWARNING: only root can make network namespaces. THIS TEST IS LEFT OUT.\n");
    }
    root
}

impl Hosts {
    /// Makes hosts, and moves the calling thread to host 0: what it starts from now on runs there.
    ///
    /// # Errors
    /// If this is not root, or the tools are missing.
    pub fn new(count: u8) -> Result<Self> {
        let prefix = format!("tw{}x{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let this = Self { prefix, count };
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

    /// The name of a host's namespace.
    pub fn host(&self, number: u8) -> String {
        self.name(&number.to_string())
    }

    /// The address of a host.
    pub fn address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, number + 1)
    }

    /// Drops everything that one host sends to another.
    ///
    /// # Errors
    /// If `nft` refuses.
    pub fn cut(&self, from: u8, to: u8) -> Result<()> {
        let table = "add table inet cut; add chain inet cut out { type filter hook output priority 0; }";
        let rule = format!("{table}; add rule inet cut out ip daddr {} drop", self.address(to));
        ip(&["netns", "exec", &self.host(from), "nft", &rule])
    }

    /// Drops everything that a host sends, and everything that is sent to it.
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

    /// Mends every cut.
    ///
    /// # Errors
    /// If `nft` refuses.
    pub fn heal(&self) -> Result<()> {
        (0..self.count).try_for_each(|host| ip(&["netns", "exec", &self.host(host), "nft", "flush ruleset"]))
    }

    /// Makes everything that a host sends slow: so many kilobits a second.
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
        for number in 0..self.count {
            // What is missing needs not be removed.
            let _ = ip(&["netns", "del", &self.host(number)]);
        }
        let _ = ip(&["netns", "del", &self.name("sw")]);
    }
}
