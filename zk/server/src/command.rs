//! The Java command line of a ZooKeeper server.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The Debian packages that are required.
pub const PACKAGES: &[&str] = &["default-jre-headless", "zookeeper"];

const FOLDER: &str = "/usr/share/java";

/// The libraries that the server needs; the package's own list is much longer.
const JARS: [&str; 10] = [
    "zookeeper.jar",
    "slf4j-simple.jar",
    "servlet-api.jar",
    "netty-buffer.jar",
    "netty-codec.jar",
    "netty-common.jar",
    "netty-handler.jar",
    "netty-resolver.jar",
    "netty-transport.jar",
    "netty-transport-native-unix-common.jar",
];

/// Returns whether servers can be started on this machine.
pub fn is_installed() -> bool {
    let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    java.is_ok_and(|status| status.success()) && Path::new(FOLDER).join(JARS[0]).exists()
}

/// Returns the command that runs a server with this `zoo.cfg`.
pub(crate) fn server(config: &Path, more: &[String]) -> Command {
    let class_path = JARS.map(|jar| format!("{FOLDER}/{jar}")).join(":");
    let mut command = Command::new("java");
    // It must start fast and use little memory; its speed is not measured.
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.args(more).args(["-cp", &class_path]);
    command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
    command
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn unit_and_command_use_the_same_libraries() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in ["deploy/systemd/zookeeper.service", "taskwork/operator/src/up/machine.sh"] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            for jar in JARS {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
                let name = jar.trim_end_matches(".jar");
                assert!(text.split(|c| !is_word(c)).any(|word| word == name), "{file} has no {jar}");
            }
        }
    }
}
