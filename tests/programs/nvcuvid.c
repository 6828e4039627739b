// SPDX-License-Identifier: Apache-2.0
// Stands in for the video decoder's library. GStreamer's plug-in looks for its functions before it
// offers any other use of a GPU. There is no decoder: each function returns
// CUDA_ERROR_NOT_SUPPORTED.
#define NOT_SUPPORTED(function)                                                                    \
    int function(void);                                                                            \
    int function(void) {                                                                           \
        return 801;                                                                                \
    }

NOT_SUPPORTED(cuvidCtxLockCreate)
NOT_SUPPORTED(cuvidCtxLockDestroy)
NOT_SUPPORTED(cuvidCtxLock)
NOT_SUPPORTED(cuvidCtxUnlock)
NOT_SUPPORTED(cuvidGetDecoderCaps)
NOT_SUPPORTED(cuvidCreateDecoder)
NOT_SUPPORTED(cuvidDestroyDecoder)
NOT_SUPPORTED(cuvidDecodePicture)
NOT_SUPPORTED(cuvidCreateVideoParser)
NOT_SUPPORTED(cuvidParseVideoData)
NOT_SUPPORTED(cuvidDestroyVideoParser)
NOT_SUPPORTED(cuvidMapVideoFrame64)
NOT_SUPPORTED(cuvidUnmapVideoFrame64)
