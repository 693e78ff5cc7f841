//! `health`: queries the health of a node on this machine, for supervisors that can only run a command.
//!
//! The endpoint of a node (`node --health`) is restricted to its own machine, because it has neither a password nor
//! TLS. The supervisor of a container, such as that of Kubernetes, has another network address, but it can run this
//! command in the container.

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use clap::Args;

use crate::{
    Failure,
    failure::print,
    preemption::metadata::{Service, Trouble},
    target::{runtime, seconds},
};

/// The arguments of `health`.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// Check whether the node is ready: a member, and connected to ZooKeeper. The default is to check whether it is
    /// alive, as it is while it waits for ZooKeeper.
    #[arg(long)]
    ready: bool,
    /// The address of the node, as given to node --health.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8788")]
    at: SocketAddr,
    /// Maximum time to wait for the answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    timeout: Duration,
}

/// Queries a node, and prints its answer. Exit code 0 if it is alive or ready; 1 if it is not; 3 without an answer.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let at = arguments.at;
    let asked = Service::with_timeout(at.to_string(), arguments.timeout);
    let path = if arguments.ready { "/readyz" } else { "/livez" };
    let answer = runtime()?.block_on(asked.get(path, &[])).map_err(|trouble| match trouble {
        Trouble::Late(_) | Trouble::Http(_) | Trouble::Body => {
            Failure::unreachable(format!("the node at {at} does not answer: {trouble}"))
        }
        _ => Failure::unreachable(format!(
            "no node answers at {at}: {trouble}. It serves that address if it was started with node --health {at}"
        )),
    })?;
    let said = line(&answer.body);
    match answer.status {
        200 => {
            print(&format!("{said}\n"));
            Ok(ExitCode::SUCCESS)
        }
        503 => Err(Failure::failed(said)),
        status => Err(Failure::unreachable(format!("what answers at {at} is no node: status {status}"))),
    }
}

/// Returns the first line of an answer, sanitized: another process may have the port.
fn line(body: &str) -> String {
    let line = body.lines().next().unwrap_or_default();
    line.chars().filter(|char| !char.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use taskwork::node::Health;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpSocket},
    };

    use super::*;
    use crate::web::{Pages, serve};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// A timeout that is long enough for a busy machine.
    const PATIENCE: &str = "60";

    /// Queries a port of this machine, and returns the exit code and the output.
    fn asked(at: SocketAddr, timeout: &str, more: &[&str]) -> (u8, String) {
        let at = at.to_string();
        let line = [&["health", "--at", &at, "--timeout", timeout], more].concat();
        let Line { arguments } = Line::try_parse_from(line).unwrap();
        match run(&arguments) {
            Ok(_) => (0, String::new()),
            Err(failure) => {
                let code = format!("{:?}", failure.exit_code());
                let codes = (0..5).map(|code| (code, format!("{:?}", ExitCode::from(code))));
                (codes.into_iter().find(|(_, text)| *text == code).unwrap().0, failure.to_string())
            }
        }
    }

    /// Runs a server on a thread until the process exits.
    fn served<F: Future<Output = ()>>(serve: impl FnOnce(TcpListener) -> F + Send + 'static) -> SocketAddr {
        let (told, at) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            runtime().unwrap().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                serve(listener).await;
            });
        });
        at.recv().unwrap()
    }

    #[test]
    fn node_before_membership_is_alive_but_not_ready() {
        let at = served(|listener| async {
            serve(listener, Pages::of_node(Health::default)).await;
        });
        assert_eq!(asked(at, PATIENCE, &[]), (0, String::new()));
        assert_eq!(
            asked(at, PATIENCE, &["--ready"]),
            (1, "the node is not a member of the cluster".to_owned())
        );
    }

    #[test]
    fn missing_silent_and_foreign_servers_are_distinguished() {
        // Bound without listening, so that no other process gets the port.
        let held = TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (code, said) = asked(held.local_addr().unwrap(), PATIENCE, &[]);
        assert!(code == 3 && said.contains("node --health"), "{code}: {said}");

        let hangs = served(|listener| async move {
            let mut open = Vec::new();
            while let Ok(connection) = listener.accept().await {
                open.push(connection);
            }
        });
        let (code, said) = asked(hangs, "0.5", &[]);
        assert!(code == 3 && said.contains("does not answer"), "{code}: {said}");

        // Another server has the port.
        let other = served(|listener| async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // An answer is valid only after the request was sent.
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        });
        let (code, said) = asked(other, PATIENCE, &[]);
        assert!(code == 3 && said.contains("is no node"), "{code}: {said}");
    }

    #[test]
    fn control_characters_in_answer_are_removed() {
        assert_eq!(line("ready\u{1b}[2J\nmore"), "ready[2J");
        assert_eq!(line(&"x".repeat(1000)).len(), 200);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for wrong in [&["--at", "localhost"][..], &["--at", "8788"], &["--timeout", "0"], &["ready"]] {
            assert!(Line::try_parse_from([&["health"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }
}
