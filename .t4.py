import sys; sys.path.insert(0,"/tmp/w/wt/onnx-core/packages/tile-onnx/tests")
import test_fuzz, onnx, resource
resource.setrlimit(resource.RLIMIT_AS,(6<<30,6<<30))
import traceback
for k,m in enumerate(test_fuzz.mutants(293)):
    if k in (268,292):
        if isinstance(m,bytes):
            m=onnx.ModelProto.FromString(m)
        print(str(m)[:1500])
        import tile_onnx
        try:
            a=tile_onnx.load(m); a.check()
        except BaseException as e: traceback.print_exc(limit=30)
