//! CUPTI, loaded at run time: its activity interface.
#![expect(unsafe_code, reason = "the C interface of CUPTI")]

use super::layout::{kernel, kinds};
use crate::toolchain::toolkit;
use libloading::os::unix::Library;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What CUPTI answers; 0 is good.
type Answer = u32;

/// There is no further record in a buffer.
const NO_MORE: Answer = 12;

/// Of the stack of ids that a program pushes: CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0.
const CUSTOM: u32 = 3;

/// CUPTI_CB_DOMAIN_DRIVER_API.
const DRIVER_API: u32 = 1;

/// `cuStreamQuery`, which a host that waits calls thousands of times, and its variant for the stream of a thread.
const POLLS: [u32; 2] = [125, 439];

/// CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: buffers that are not full yet too.
const FORCED: u32 = 1;

const BUFFER_BYTES: usize = 8 << 20;

/// Buffers are words, as their records want to be aligned.
type Word = u64;

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The functions that are used.
struct Functions {
    register: unsafe extern "C" fn(Request, Complete) -> Answer,
    enable: unsafe extern "C" fn(u32) -> Answer,
    disable: unsafe extern "C" fn(u32) -> Answer,
    /// From CUPTI 12.3 on.
    enable_call: Option<unsafe extern "C" fn(u32, u8) -> Answer>,
    flush: unsafe extern "C" fn(u32) -> Answer,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Answer,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Answer,
    push: unsafe extern "C" fn(u32, u64) -> Answer,
    pop: unsafe extern "C" fn(u32, *mut u64) -> Answer,
    timestamp: unsafe extern "C" fn(*mut u64) -> Answer,
    version: unsafe extern "C" fn(*mut u32) -> Answer,
    call_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Answer,
    text: unsafe extern "C" fn(Answer, *mut *const c_char) -> Answer,
}

/// What buffers held: records, and the names of kernels by their addresses.
#[derive(Default)]
pub struct Collected {
    /// A record each, from its first byte to the end of its buffer or as far as any field is read.
    pub records: Vec<Vec<u8>>,
    /// Names by address.
    pub names: HashMap<u64, String>,
    /// Records that found no room.
    pub lost: usize,
}

/// As far as any field of a record is read.
const RECORD_BYTES: usize = 160;

static COLLECTED: Mutex<Option<Collected>> = Mutex::new(None);

/// The library, opened once.
pub struct Cupti {
    functions: Functions,
}

impl Cupti {
    /// Opens the library and registers for its buffers.
    ///
    /// # Errors
    /// Why there is none, and what to install.
    pub fn open() -> Result<&'static Cupti, String> {
        static CUPTI: OnceLock<Result<Cupti, String>> = OnceLock::new();
        CUPTI.get_or_init(|| load().and_then(Cupti::registered)).as_ref().map_err(Clone::clone)
    }

    fn registered(functions: Functions) -> Result<Self, String> {
        let cupti = Cupti { functions };
        // SAFETY: both functions live as long as the program, and keep what CUPTI's documentation asks of them.
        let answer = unsafe { (cupti.functions.register)(request, complete) };
        cupti.check(answer, "registering for its buffers")?;
        Ok(cupti)
    }

    /// The version of its interface.
    pub fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { (self.functions.version)(&mut version) };
        version
    }

    /// Its clock, ns.
    pub fn now_ns(&self) -> u64 {
        let mut now = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { (self.functions.timestamp)(&mut now) };
        now
    }

    /// Begins to record the kinds that are asked for.
    ///
    /// # Errors
    /// What CUPTI says: another profiler may be at work, or this user may not use it.
    pub fn resume(&self) -> Result<(), String> {
        for kind in kinds::ASKED {
            // SAFETY: takes a number.
            self.check(unsafe { (self.functions.enable)(kind) }, "recording its activities")?;
        }
        if let Some(enable_call) = self.functions.enable_call {
            for call in POLLS {
                // SAFETY: takes numbers. Without it there are more records, none is wrong.
                unsafe { enable_call(call, 0) };
            }
        }
        Ok(())
    }

    /// Ends that.
    pub fn pause(&self) {
        for kind in kinds::ASKED {
            // SAFETY: takes a number.
            unsafe { (self.functions.disable)(kind) };
        }
    }

    /// Calls of this thread belong to this id from now on.
    pub fn push(&self, id: u64) {
        // SAFETY: takes numbers.
        unsafe { (self.functions.push)(CUSTOM, id) };
    }

    /// Calls of this thread belong to the id before.
    pub fn pop(&self) {
        let mut last = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { (self.functions.pop)(CUSTOM, &mut last) };
    }

    /// All records so far; the device has finished its work.
    pub fn collect(&self) -> Collected {
        // SAFETY: takes a number; buffers come to `complete` on this thread.
        unsafe { (self.functions.flush)(FORCED) };
        COLLECTED.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// The name of a driver function.
    pub fn call_name(&self, number: u32) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is valid for the call; the text is static.
        let answer = unsafe { (self.functions.call_name)(DRIVER_API, number, &mut name) };
        if answer == 0 { text(name) } else { format!("driver call {number}") }
    }

    fn check(&self, answer: Answer, what: &str) -> Result<(), String> {
        if answer == 0 {
            return Ok(());
        }
        let mut said = std::ptr::null();
        // SAFETY: the pointer is valid for the call; the text is static.
        unsafe { (self.functions.text)(answer, &mut said) };
        Err(format!("CUPTI, {what}: {} ({answer})", text(said)))
    }
}

/// A text of the library.
fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the library's texts end in NUL and outlive the call that gave them.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// A kernel's name as its source has it.
fn readable(mangled: &str) -> String {
    let demangled = cpp_demangle::Symbol::new(mangled).ok().and_then(|symbol| symbol.demangle().ok());
    demangled.unwrap_or_else(|| mangled.to_owned())
}

/// CUPTI asks for a buffer.
extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let words = vec![0 as Word; BUFFER_BYTES / size_of::<Word>()].into_boxed_slice();
    // SAFETY: CUPTI gives three valid pointers; it returns the buffer to `complete`, which frees it. 0 is no limit of records.
    unsafe {
        *buffer = Box::into_raw(words).cast();
        *size = BUFFER_BYTES;
        *records = 0;
    }
}

/// CUPTI returns a buffer with records in it.
extern "C" fn complete(context: *mut c_void, stream: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    let pointer = std::ptr::slice_from_raw_parts_mut(buffer.cast::<Word>(), BUFFER_BYTES / size_of::<Word>());
    // SAFETY: the buffer is one of `request`, and comes back once.
    let words = unsafe { Box::from_raw(pointer) };
    // A panic must not reach CUPTI.
    let _ = std::panic::catch_unwind(|| keep(context, stream, &words, valid));
}

fn keep(context: *mut c_void, stream: u32, words: &[Word], valid: usize) {
    // Registered once it was opened.
    let Ok(Cupti { functions }) = Cupti::open() else { return };
    let bytes: &[u8] = &bytemuck::cast_slice(words)[..valid.min(BUFFER_BYTES)];
    let mut kept = COLLECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    let mut record: *mut u8 = std::ptr::null_mut();
    loop {
        // SAFETY: buffer and length are those that CUPTI filled; it only reads there and moves `record` on within them.
        let answer = unsafe { (functions.next)(bytes.as_ptr().cast_mut(), valid, &mut record) };
        if answer != 0 {
            debug_assert!(answer == NO_MORE, "CUPTI: a buffer is damaged ({answer})");
            break;
        }
        let Some(at) = (record as usize).checked_sub(bytes.as_ptr() as usize).filter(|at| *at < bytes.len()) else {
            break;
        };
        let own = &bytes[at..bytes.len().min(at + RECORD_BYTES)];
        let is_kernel = own.get(..4).is_some_and(|kind| kind == kinds::CONCURRENT_KERNEL.to_le_bytes());
        if let Some(address) = kernel::NAME.of(own).filter(|address| is_kernel && *address != 0) {
            // The text lives at least as long as the record.
            kept.names.entry(address).or_insert_with(|| readable(&text(address as *const c_char)));
        }
        kept.records.push(own.to_vec());
    }
    let mut lost = 0;
    // SAFETY: context and stream are those of the buffer; the pointer is valid for the call.
    unsafe { (functions.dropped)(context, stream, &mut lost) };
    kept.lost += lost;
}

fn load() -> Result<Functions, String> {
    const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
    let beside = NAMES.iter().filter_map(|name| toolkit::library(name));
    let all = NAMES.iter().map(|name| std::path::PathBuf::from(*name)).chain(beside);
    // SAFETY: CUPTI has no load-time requirements; its initialisers only register tables.
    let library = all.into_iter().find_map(|path| unsafe { Library::new(path) }.ok()).ok_or_else(|| {
        "CUPTI was not found (libcupti.so.13 or .12): it comes with the CUDA toolkit, and as `pip install nvidia-cuda-cupti`"
            .to_owned()
    })?;
    /// A function of the library, which is never closed.
    fn find<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
        // SAFETY: the types above are those of the header of CUPTI 12 and 13.
        unsafe { library.get::<F>(name.as_bytes()) }
            .map(|symbol| *symbol)
            .map_err(|e| format!("CUPTI has no {name}: {e}"))
    }
    let functions = Functions {
        register: find(&library, "cuptiActivityRegisterCallbacks")?,
        enable: find(&library, "cuptiActivityEnable")?,
        disable: find(&library, "cuptiActivityDisable")?,
        enable_call: find(&library, "cuptiActivityEnableDriverApi").ok(),
        flush: find(&library, "cuptiActivityFlushAll")?,
        next: find(&library, "cuptiActivityGetNextRecord")?,
        dropped: find(&library, "cuptiActivityGetNumDroppedRecords")?,
        push: find(&library, "cuptiActivityPushExternalCorrelationId")?,
        pop: find(&library, "cuptiActivityPopExternalCorrelationId")?,
        timestamp: find(&library, "cuptiGetTimestamp")?,
        version: find(&library, "cuptiGetVersion")?,
        call_name: find(&library, "cuptiGetCallbackName")?,
        text: find(&library, "cuptiGetResultString")?,
    };
    std::mem::forget(library);
    Ok(functions)
}
