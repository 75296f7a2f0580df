/* SIGBUS handlers as other libraries have them, for test_foreign_signals.py. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What was there before each of the two handlers that care. */
static struct sigaction before_raising, before_calling;
static __thread sigjmp_buf back;
static char stack[1 << 18];

static void say(const char *text) {
    ssize_t written = write(1, text, strlen(text));
    (void)written;
}

/* How it was called: all that a handler can ask for when it is installed. */
static void show(void) {
    sigset_t mask;
    stack_t where;
    struct sigaction now;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigaltstack(NULL, &where);
    sigaction(SIGBUS, NULL, &now);
    char text[200] = "[";
    strcat(text, sigismember(&mask, SIGBUS) ? "SIGBUS blocked, " : "SIGBUS open, ");
    strcat(text, sigismember(&mask, SIGUSR1) ? "SIGUSR1 blocked, " : "SIGUSR1 open, ");
    strcat(text, where.ss_flags & SS_ONSTACK ? "alternate stack, " : "usual stack, ");
    strcat(text, now.sa_handler == SIG_DFL ? "was reset]\n" : "still there]\n");
    say(text);
}

static void exits(int signal) { show(); _exit(signal == SIGBUS ? 3 : 4); }

static void exits_informed(int signal, siginfo_t *info, void *context) {
    show();
    say(info->si_code > 0 ? "[fault]" : info->si_code == SI_QUEUE ? "[queued]" : "[sent]");
    if (info->si_code == SI_QUEUE && info->si_value.sival_int == 42) say("[42]");
    _exit(signal == SIGBUS && context != NULL ? 3 : 4);
}

static void returns(int signal) { (void)signal; show(); errno = 1234; }

/* Makes the access possible that was not. */
static void repairs(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    show();
    if (info->si_code <= 0) return;
    char *page = (char *)((unsigned long)info->si_addr & ~4095ul);
    mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    *(char *)info->si_addr = 77;
}

static void jumps(int signal) { (void)signal; siglongjmp(back, 1); }

/* What Python's faulthandler does. */
static void raises_again(int signal) {
    show();
    sigaction(signal, &before_raising, NULL);
    raise(signal);
}

/* What a library does that knows that it is not alone. */
static void calls_the_previous(int signal, siginfo_t *info, void *context) {
    show();
    struct sigaction previous = before_calling;
    if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(signal, &action, NULL);
        if (info->si_code <= 0) raise(signal);
    } else if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else {
        previous.sa_handler(signal);
    }
}

/* Some libraries do nothing if they are installed already, and keep what came after them if it did. */
static int is_installed(void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction now;
    return sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == handler;
}

int install(const char *kind, int flags) {
    struct sigaction action = {.sa_flags = flags}, *previous = NULL;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1);
    if (!strcmp(kind, "default")) action.sa_handler = SIG_DFL;
    else if (!strcmp(kind, "ignored")) action.sa_handler = SIG_IGN;
    else if (!strcmp(kind, "exits")) action.sa_handler = exits;
    else if (!strcmp(kind, "returns")) action.sa_handler = returns;
    else if (!strcmp(kind, "jumps")) action.sa_handler = jumps;
    else if (!strcmp(kind, "raises again")) action.sa_handler = raises_again, previous = &before_raising;
    else {
        action.sa_flags |= SA_SIGINFO;
        if (!strcmp(kind, "exits, informed")) action.sa_sigaction = exits_informed;
        else if (!strcmp(kind, "repairs")) action.sa_sigaction = repairs;
        else if (is_installed(calls_the_previous)) return 0;
        else if (!strcmp(kind, "calls the previous")) action.sa_sigaction = calls_the_previous, previous = &before_calling;
        else return -1;
    }
    return sigaction(SIGBUS, &action, previous);
}

int use_alternate_stack(void) {
    stack_t where = {.ss_sp = stack, .ss_size = sizeof stack};
    return sigaltstack(&where, NULL);
}

/* The byte at an address; -1: a handler jumped out. */
int touch(volatile char *address) {
    if (sigsetjmp(back, 1)) return -1;
    errno = 0;
    int found = *address;
    return errno == 0 || errno == 1234 ? found : -2;
}

/* The same so many frames further down. */
int touch_deeper(volatile char *address, int depth) {
    volatile char room[300];
    room[0] = (char)depth;
    int found = depth ? touch_deeper(address, depth - 1) : touch(address);
    return found + room[0] - (char)depth;
}

int send_queued(int pid) {
    union sigval value = {.sival_int = 42};
    return sigqueue(pid, SIGBUS, value);
}
