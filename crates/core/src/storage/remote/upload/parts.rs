//! Parts that are being sent, and those that have arrived.

use super::memory::{Memory, Room};
use super::{Pieces, command};
use crate::error::{Error, Result};
use crate::process;
use crate::storage::remote::request::Object;
use crate::storage::remote::runtime::{or_panicked, runtime};
use crate::storage::remote::sending::Sending;
use crate::storage::remote::url::RemoteUrl;
use crate::writer::pool::Listen;
use bytes::Bytes;
use object_store::multipart::MultipartStore;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, watch};

/// How long an abort may take.
const ABORT: Duration = Duration::from_secs(10);
/// How long an upload that is being begun may take to get its name after it was aborted. Without it, it cannot be
/// aborted: an upload without parts may be left.
const NAMING: Duration = Duration::from_secs(2);

/// The parts of one upload.
pub struct Parts {
    pub object: Object,
    pub url: RemoteUrl,
    memory: Arc<Memory>,
    /// The name that the store gave to the upload, once there is one.
    id: OnceCell<String>,
    state: Mutex<State>,
    /// Whether the upload is aborted.
    stop: watch::Sender<bool>,
    generation: u64,
}

#[derive(Default)]
struct State {
    /// What the store calls the parts. None: not arrived.
    arrived: Vec<Option<String>>,
    running: usize,
    /// Whether the checksums of all bytes that have arrived were compared. None: nothing has arrived.
    is_compared: Option<bool>,
    /// Whether parts may have been sent, so that the store has to forget them.
    is_begun: bool,
    failed: Option<Error>,
    is_failed: bool,
    /// Whether the store has refused to begin the upload. Then no other part tries to begin it.
    is_refused: bool,
}

impl State {
    fn note_comparison(&mut self, is_compared: bool) {
        self.is_compared = Some(is_compared && self.is_compared != Some(false));
    }
}

impl Parts {
    pub fn new(object: Object, url: RemoteUrl, memory: Arc<Memory>) -> Self {
        let (id, state, stop) = (OnceCell::new(), Mutex::default(), watch::Sender::new(false));
        Parts { object, url, memory, id, state, stop, generation: process::generation() }
    }

    /// Takes the parts of an earlier upload. Nothing may have been sent here.
    pub fn adopt(&self, pieces: Pieces, is_compared: bool) -> Result<()> {
        let taken = |_| Error::closed("the upload has begun");
        self.id.set(pieces.id).map_err(taken)?;
        let mut state = self.state();
        state.arrived = pieces.parts.into_iter().map(Some).collect();
        state.is_begun = true;
        state.is_compared = Some(is_compared);
        Ok(())
    }

    /// Call it when bytes have arrived. `is_compared`: whether the store has told the right checksum of them.
    pub fn note_comparison(&self, is_compared: bool) {
        self.state().note_comparison(is_compared);
    }

    /// Whether all bytes have arrived, and the store has told the right checksums of them.
    pub fn is_compared(&self) -> bool {
        let state = self.state();
        state.running == 0 && !state.is_failed && state.is_compared == Some(true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> Result<&dyn MultipartStore> {
        self.object.store.parts.as_deref().ok_or_else(|| Error::argument("this store takes no parts"))
    }

    /// Sends a part.
    pub fn start(self: &Arc<Self>, number: usize, bytes: Bytes, room: Room) -> Result<()> {
        {
            let mut state = self.state();
            state.running += 1;
            state.is_begun = true;
            let length = state.arrived.len().max(number + 1);
            state.arrived.resize(length, None);
        }
        let parts = self.clone();
        let task = async move {
            let sent = or_panicked(parts.send(number, bytes)).await;
            let mut state = parts.state();
            match sent {
                Ok(Some((name, is_compared))) => {
                    state.arrived[number] = Some(name);
                    state.note_comparison(is_compared);
                }
                // The part that tried to begin the upload has the error.
                Ok(None) => {}
                Err(error) => {
                    state.is_failed = true;
                    state.failed.get_or_insert(error.in_file(parts.url.shown()));
                }
            }
            state.running -= 1;
            drop(state);
            // Whoever waits finds the room free.
            drop(room);
            parts.memory.notify();
        };
        runtime()?.spawn(task);
        Ok(())
    }

    /// What the store calls the part, and whether its checksum was compared. None if the upload could not be begun for
    /// another part.
    async fn send(&self, number: usize, bytes: Bytes) -> Result<Option<(String, bool)>> {
        let id = tokio::select! {
            begun = self.id.get_or_try_init(|| self.begin_once()) => match begun {
                Ok(id) => id,
                Err(None) => return Ok(None),
                Err(Some(error)) => return Err(error),
            },
            () = self.stopped_for(NAMING) => return Err(Error::cancellation()),
        };
        tokio::select! {
            biased;
            () = self.stopped_for(Duration::ZERO) => Err(Error::cancellation()),
            sent = self.send_part(id, number, bytes) => sent.map(Some),
        }
    }

    /// Waits until the upload was aborted that long ago.
    async fn stopped_for(&self, time: Duration) {
        // The sender lives as long as the parts.
        let _ = self.stop.subscribe().wait_for(|is_stopped| *is_stopped).await;
        tokio::time::sleep(time).await;
    }

    /// Begins the upload. `Err(None)` if that failed before, or if it was aborted.
    async fn begin_once(&self) -> std::result::Result<String, Option<Error>> {
        if self.state().is_refused || *self.stop.borrow() {
            return Err(None);
        }
        let begun = self.begin().await;
        self.state().is_refused = begun.is_err();
        begun.map_err(Some)
    }

    async fn begin(&self) -> Result<String> {
        let (store, patience) = (self.store()?, self.object.store.policy.read_timeout);
        let begin = || store.create_multipart(&self.object.path);
        self.object.send(&command(&self.object), patience, begin).await.result
    }

    async fn send_part(&self, id: &String, number: usize, bytes: Bytes) -> Result<(String, bool)> {
        let (store, patience) = (self.store()?, self.object.store.policy.read_timeout);
        let sending =
            Arc::new(Sending::bytes(self.object.store.kind, &bytes, self.object.store.policy.check_uploads));
        let send = || store.put_part(&self.object.path, id, number, sending.payload());
        let sent = self.object.send(&sending, patience, send).await.result;
        sent.map(|part| (part.content_id, sending.was_compared()))
    }

    /// The error of a part that has failed.
    pub fn check(&self) -> Result<()> {
        if self.generation != process::generation() {
            return Err(Error::closed("an upload belongs to the process that began it"));
        }
        let mut state = self.state();
        match state.failed.take() {
            Some(error) => Err(error),
            None if state.is_failed => Err(Error::closed("the upload has failed before")),
            None => Ok(()),
        }
    }

    /// Waits for the room of a part. An error if a part has failed meanwhile.
    pub fn wait_for_room(&self, listen: &Listen) -> Result<Room> {
        self.memory.take(|| {
            (listen.0)()?;
            self.check()
        })
    }

    /// Waits until so many bytes of a temporary file may be sent. An error if a part has failed meanwhile.
    pub fn wait_for_file(&self, bytes: u64, listen: &Listen) -> Result<Room> {
        self.memory.take_file(bytes, || {
            (listen.0)()?;
            self.check()
        })
    }

    /// Waits until all parts that were started have arrived.
    pub fn wait(&self, listen: &Listen) -> Result<()> {
        loop {
            self.check()?;
            if self.state().running == 0 {
                return self.check();
            }
            (listen.0)()?;
            self.memory.wait();
        }
    }

    /// What has arrived, if all of it has.
    pub fn pieces(&self, size: u64) -> Result<Pieces> {
        let parts: Option<Vec<_>> = self.state().arrived.iter().cloned().collect();
        let id = self.id.get().cloned();
        match (id, parts) {
            (Some(id), Some(parts)) => Ok(Pieces { id, parts, size }),
            _ => Err(Error::closed("parts of the upload are missing")),
        }
    }

    /// Aborts the upload, within a bounded time. If that fails, the user is told which upload is left.
    pub fn abort(self: &Arc<Self>) {
        // In a forked child, the upload belongs to the parent.
        if self.generation != process::generation() {
            return;
        }
        self.stop.send_replace(true);
        if !std::mem::take(&mut self.state().is_begun) {
            return;
        }
        let (sender, receiver) = channel();
        let parts = self.clone();
        let task = async move {
            let aborted = tokio::time::timeout(ABORT, or_panicked(parts.forget())).await;
            let why = match aborted {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the store did not answer in time".to_owned()),
            };
            // The receiver is gone if it took too long.
            let _ = sender.send(why);
        };
        let Ok(runtime) = runtime() else { return };
        runtime.spawn(task);
        let why = match receiver.recv_timeout(ABORT + Duration::from_secs(1)) {
            Ok(None) => return,
            Ok(Some(why)) => why,
            Err(_) => "the store did not answer in time".to_owned(),
        };
        // An upload without a name has no parts.
        let Some(id) = self.id.get() else { return };
        self.memory.note(format!(
            "the upload {id:?} of {} could not be aborted ({why}); its parts stay in the store, invisible, until it is \
             aborted: a lifecycle rule of the bucket for incomplete uploads does that",
            self.url.shown()
        ));
    }

    /// Lets the store forget the parts.
    async fn forget(&self) -> Result<()> {
        // Parts that are being sent stop at once. An upload that is just begun gets its name first.
        while self.state().running > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let Some(id) = self.id.get() else { return Ok(()) };
        super::finish::abort(&self.object, id).await
    }
}
