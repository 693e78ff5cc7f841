//! A call over the REST interface of a gateway.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use thiserror::Error;

/// The reasons for which a gateway makes no call.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum RemoteError {
    #[error("the address of a gateway is http://HOST:PORT, not {0:?}")]
    Address(String),
    #[error("the gateway at {address} cannot be reached: {error}")]
    Io { address: String, error: io::Error },
    #[error("the gateway refuses the call: {0}")]
    Refused(String),
}

/// Makes a call, and returns its outcome as JSON, with the index 0.
pub(crate) fn call(gateway: &str, routine: &str, argument: &str) -> Result<String, RemoteError> {
    let address = gateway.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let is_plain =
        |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    let address = address.filter(is_plain).ok_or_else(|| RemoteError::Address(gateway.to_owned()))?;
    if !is_plain(&routine) {
        return Err(RemoteError::Refused(format!("{routine:?} is neither NAME@VERSION nor a digest")));
    }
    let (status, body) = ask(address, routine, &format!("{{\"argument\":{argument}}}"))
        .map_err(|error| RemoteError::Io { address: address.to_owned(), error })?;
    if status == "200" {
        return Ok(body);
    }
    let problem = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
    Err(RemoteError::Refused(problem["detail"].as_str().map_or(body, str::to_owned)))
}

/// Sends a request, and returns the status and the body of the answer.
fn ask(address: &str, routine: &str, body: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    // HTTP/1.0: the body ends with the connection.
    let head = format!(
        "POST /v1/routines/{routine}/call HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1);
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
    Ok((status.ok_or_else(invalid)?.to_owned(), body.to_owned()))
}
