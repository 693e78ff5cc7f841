//! ZooKeeper's four-letter commands.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Maximum time for each step of the exchange.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends a command and returns the server's answer.
pub(crate) fn ask(server: SocketAddr, word: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).context("the server does not listen")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(word.as_bytes()).context("the server does not read")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("the server does not answer")?;
    Ok(answer)
}
