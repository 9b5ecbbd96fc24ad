package interop;

import com.sun.jdi.AbsentInformationException;
import com.sun.jdi.Bootstrap;
import com.sun.jdi.IncompatibleThreadStateException;
import com.sun.jdi.Method;
import com.sun.jdi.ThreadReference;
import com.sun.jdi.VirtualMachine;
import com.sun.jdi.connect.AttachingConnector;
import com.sun.jdi.connect.Connector;
import com.sun.jdi.event.BreakpointEvent;
import com.sun.jdi.event.Event;
import com.sun.jdi.event.EventSet;
import com.sun.jdi.request.BreakpointRequest;
import com.sun.jdi.request.EventRequest;
import java.util.Map;

/**
 * A debugger that makes two threads of a bookie, one that adds the first entry of a ledger and one that fences it, take their
 * steps in the order in which the lock between them does not work, if each may have a handle of its own.
 *
 * <p>It is given the port of the bookie's virtual machine, prints a line when it is ready and another one when the add is stopped
 * past its look at the fence, or cannot get there, and lets all go on when standard input ends.
 */
public final class TwoHandles {
    private static final String CLASSES = "org.apache.bookkeeper.bookie.LedgerDescriptor";
    /** Milliseconds in which a thread comes that nothing stops. */
    private static final long PATIENCE = 30_000;
    /** Milliseconds after which a thread that has not come is taken to wait for a lock. */
    private static final long LOCKED = 2_000;

    private final VirtualMachine bookie;

    private TwoHandles(VirtualMachine bookie) {
        this.bookie = bookie;
    }

    public static void main(String[] arguments) throws Exception {
        AttachingConnector connector = Bootstrap.virtualMachineManager().attachingConnectors().stream()
            .filter(each -> each.name().equals("com.sun.jdi.SocketAttach")).findFirst().orElseThrow();
        Map<String, Connector.Argument> given = connector.defaultArguments();
        given.get("hostname").setValue("127.0.0.1");
        given.get("port").setValue(arguments[0]);
        VirtualMachine bookie = connector.attach(given);
        try {
            new TwoHandles(bookie).run();
        } finally {
            bookie.dispose();
        }
    }

    private void run() throws Exception {
        BreakpointRequest made = stopAt(CLASSES, "create");
        BreakpointRequest fences = stopAt(CLASSES + "Impl", "fenceAndLogInJournal");
        BreakpointRequest adds = stopAt(CLASSES + "Impl", "addEntry");
        System.out.println("ready");
        ThreadReference first = reached();
        ThreadReference second = reached();
        made.disable();
        ThreadReference fence = isFence(first) ? first : second;
        ThreadReference add = isFence(first) ? second : first;
        fence.resume();
        reached();
        fences.disable();
        add.resume();
        boolean past = next(LOCKED) != null;
        adds.disable();
        fence.resume();
        System.out.println(past ? "passes the fence" : "waits for the fence");
        System.in.read();
    }

    private BreakpointRequest stopAt(String type, String name) throws AbsentInformationException {
        Method method = bookie.classesByName(type).get(0).methodsByName(name).get(0);
        BreakpointRequest request = bookie.eventRequestManager().createBreakpointRequest(method.location());
        request.setSuspendPolicy(EventRequest.SUSPEND_EVENT_THREAD);
        request.enable();
        return request;
    }

    private ThreadReference reached() throws InterruptedException {
        ThreadReference thread = next(PATIENCE);
        if (thread == null) {
            throw new IllegalStateException("no thread came to the place where it was to be stopped");
        }
        return thread;
    }

    /** The next thread that comes to a place where it is stopped; null if none does in time. */
    private ThreadReference next(long patience) throws InterruptedException {
        long end = System.currentTimeMillis() + patience;
        while (System.currentTimeMillis() < end) {
            EventSet set = bookie.eventQueue().remove(Math.max(1, end - System.currentTimeMillis()));
            if (set != null) {
                for (Event event : set) {
                    if (event instanceof BreakpointEvent) {
                        return ((BreakpointEvent) event).thread();
                    }
                }
                set.resume();
            }
        }
        return null;
    }

    private static boolean isFence(ThreadReference thread) throws IncompatibleThreadStateException {
        return thread.frames().stream().anyMatch(frame -> frame.location().method().name().equals("fenceLedger"));
    }
}
