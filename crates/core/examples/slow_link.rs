//! A link to a server that is far away: every round trip takes a while, and all connections share its bytes a second.
//!
//!     slow_link SERVER_PORT ROUND_TRIP_MILLISECONDS BYTES_PER_SECOND
//!
//! Prints the port that it listens on. For each line on its standard input, it prints the bytes that came from the server
//! and the requests that went to it, since the last line. It ends with its standard input.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Bytes that are read at once. Small enough for many connections to share the link evenly.
const PIECE: usize = 32 << 10;
/// Pieces on their way in one direction of a connection.
const ON_THE_WAY: usize = 256;

struct Link {
    /// The time that a piece takes in one direction.
    delay: Duration,
    bytes_per_second: f64,
    /// When the last piece has left the link.
    free: Mutex<Instant>,
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl Link {
    /// When a piece has left the link, if it joins the queue now.
    fn pass(&self, bytes: usize) -> Instant {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = Instant::now().max(*free) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        *free
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<f64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let &[server, milliseconds, bytes_per_second] = &numbers[..] else {
        return Err("slow_link SERVER_PORT ROUND_TRIP_MILLISECONDS BYTES_PER_SECOND".into());
    };
    let link = Arc::new(Link {
        delay: Duration::from_secs_f64(milliseconds / 2000.0),
        bytes_per_second,
        free: Mutex::new(Instant::now()),
        bytes: AtomicU64::new(0),
        requests: AtomicU64::new(0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    println!("{}", listener.local_addr()?.port());
    let counts = link.clone();
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(connection(client, server as u16, link.clone()));
        }
    });
    for line in std::io::stdin().lock().lines() {
        line?;
        println!("{} {}", counts.bytes.swap(0, Relaxed), counts.requests.swap(0, Relaxed));
        std::io::stdout().flush()?;
    }
    Ok(())
}

async fn connection(client: TcpStream, server: u16, link: Arc<Link>) {
    // The handshake takes a round trip.
    tokio::time::sleep(2 * link.delay).await;
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = pipe(from_client, to_server, link.clone(), false);
    let down = pipe(from_server, to_client, link, true);
    tokio::join!(up, down);
}

/// Acknowledges what has arrived. A server that waits for this before it sends the end of an answer (Nagle's algorithm)
/// would otherwise wait for 40 ms, twice the time of the link.
fn acknowledge(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _ = stream.set_quickack(true);
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: Arc<Link>, is_down: bool) {
    let (sender, mut pieces) = tokio::sync::mpsc::channel(ON_THE_WAY);
    let read = tokio::spawn(async move {
        loop {
            let mut piece = vec![0; PIECE];
            let Ok(length @ 1..) = from.read(&mut piece).await else { return };
            acknowledge(from.as_ref());
            piece.truncate(length);
            let left = if is_down {
                link.bytes.fetch_add(length as u64, Relaxed);
                link.pass(length)
            } else {
                let is_request =
                    [&b"GET "[..], b"HEAD ", b"PUT ", b"POST "].iter().any(|m| piece.starts_with(m));
                link.requests.fetch_add(is_request.into(), Relaxed);
                Instant::now()
            };
            if sender.send((left + link.delay, piece)).await.is_err() {
                return;
            }
        }
    });
    while let Some((arrives, piece)) = pieces.recv().await {
        tokio::time::sleep_until(arrives.into()).await;
        if to.write_all(&piece).await.is_err() {
            break;
        }
    }
    read.abort();
    let _ = to.shutdown().await;
}
