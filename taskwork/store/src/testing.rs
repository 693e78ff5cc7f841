//! A web server of objects in memory, with faults, for tests.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// A web server on this machine. It serves `HEAD`, `GET` and `PUT`, also as S3 with the bucket as the first part of the path.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// The objects and the faults of a server.
#[derive(Debug, Default)]
pub struct State {
    /// The objects by their paths: `/folder/name`.
    pub objects: BTreeMap<String, Vec<u8>>,
    /// Whether the server does not know versions of objects.
    pub has_no_tags: bool,
    /// The number of next requests that it refuses for a while.
    pub unavailable: usize,
    /// The time after which it answers a received request.
    pub delay: Duration,
    /// The sizes, in bytes, after which it cuts off the next contents.
    pub cuts: Vec<usize>,
    /// Contents that replace an object once it was cut off.
    pub changes: Vec<(String, Vec<u8>)>,
    /// The places to which it redirects.
    pub redirects: BTreeMap<String, String>,
    /// The received requests: the method, the path and the requested range.
    pub requests: Vec<String>,
}

#[derive(Debug, Default)]
struct Request {
    method: String,
    path: String,
    range: Option<String>,
    if_match: Option<String>,
    body: Vec<u8>,
}

impl Server {
    /// Starts a server. It ends with the process.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, state) = (listener.local_addr()?, Arc::<Mutex<State>>::default());
        let served = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&served);
                thread::spawn(move || serve(&stream, &state));
            }
        });
        Ok(Self { address, state })
    }

    /// Returns its place: `http://127.0.0.1:1234`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns its state, which its requests wait for.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one request of a connection.
fn serve(mut stream: &TcpStream, state: &Mutex<State>) {
    // A client may end the connection at any time.
    if let Ok(request) = read(stream) {
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = lock().delay;
        thread::sleep(delay);
        let answer = lock().answer(request);
        let _ = stream.write_all(&answer);
    }
}

fn read(stream: &TcpStream) -> io::Result<Request> {
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut request = Request { method, path, ..Request::default() };
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        let value = value.trim().to_owned();
        match &*name.to_ascii_lowercase() {
            "range" => request.range = Some(value),
            "if-match" => request.if_match = Some(value),
            "content-length" => request.body = vec![0; value.parse().unwrap_or(0)],
            _ => {}
        }
    }
    from.read_exact(&mut request.body)?;
    Ok(request)
}

impl State {
    fn answer(&mut self, Request { method, path, range, if_match, body }: Request) -> Vec<u8> {
        self.requests.push(format!("{method} {path} {}", range.as_deref().unwrap_or("")).trim().to_owned());
        if self.unavailable > 0 {
            self.unavailable -= 1;
            return head("503 Service Unavailable", 0, &[]);
        }
        if let Some(place) = self.redirects.get(&path) {
            return head("302 Found", 0, &[("Location", place)]);
        }
        if method == "PUT" {
            let tag = tag(&body);
            self.objects.insert(path, body);
            return head("200 OK", 0, &[("ETag", &tag)]);
        }
        let Some(object) = self.objects.get(&path) else { return head("404 Not Found", 0, &[]) };
        let tag = tag(object);
        if if_match.is_some_and(|expected| expected != tag) {
            return head("412 Precondition Failed", 0, &[]);
        }
        let from =
            range.as_ref().and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
        let from = from.unwrap_or(0).min(object.len());
        let (status, of) = match range {
            Some(_) => ("206 Partial Content", format!("bytes {from}-{}/{}", object.len() - 1, object.len())),
            None => ("200 OK", String::new()),
        };
        let mut lines = vec![("Last-Modified", "Sat, 01 Nov 2025 10:00:00 GMT")];
        if !self.has_no_tags {
            lines.push(("ETag", &tag));
        }
        if !of.is_empty() {
            lines.push(("Content-Range", &of));
        }
        let mut answer = head(status, object.len() - from, &lines);
        if method == "GET" {
            let content = &object[from..];
            let cut = if content.is_empty() { None } else { self.cuts.pop() };
            answer.extend_from_slice(&content[..cut.unwrap_or(content.len()).min(content.len())]);
            if cut.is_some() {
                self.objects.extend(self.changes.drain(..));
            }
        }
        answer
    }
}

fn head(status: &str, bytes: usize, lines: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\nConnection: close\r\n");
    for (name, value) in lines {
        head.extend([name, ": ", value, "\r\n"]);
    }
    (head + "\r\n").into_bytes()
}

fn tag(content: &[u8]) -> String {
    let sum = content.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    format!("\"{:x}-{sum:x}\"", content.len())
}
