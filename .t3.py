import sys; sys.path.insert(0,"/tmp/w/wt/onnx-core/packages/tile-onnx/tests")
import test_fuzz, traceback, time, collections
bad=0; slow=[]
n=int(sys.argv[1])
for k,m in enumerate(test_fuzz.mutants(n)):
    t=time.process_time()
    try: test_fuzz.tried(m)
    except BaseException as e:
        bad+=1
        if bad<6: traceback.print_exc()
    t=time.process_time()-t
    if t>1: slow.append((k,t))
print(bad, "bad of", n, "slow", slow, time.process_time())
